"""A pass and a step of a network in training, as the loop of finetuning/ makes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from transfer.finetuning.schedule import Precision


@dataclass(frozen=True, kw_only=True)
class OnePass:
    """Losses and gradients of one pass."""

    loss: float
    """Sum of the losses."""
    finite: bool
    """True if the loss and all gradients are finite."""

    @classmethod
    def of(
        cls, network: nn.Module, samples: Sequence[Any], device: torch.device, precision: Precision
    ) -> Self:
        """Make one pass forward and backward."""
        total = summed_losses(network, samples, device, precision)
        total.backward()
        gradients = [p.grad for p in network.parameters() if p.grad is not None]
        finite = all(bool(each.isfinite().all()) for each in (total.detach(), *gradients))
        return cls(loss=total.item(), finite=finite)


def training_step(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    samples: Sequence[Any],
    device: torch.device,
    precision: Precision,
) -> None:
    """Make one step on samples that lie on the device; nothing is read from it."""
    optimizer.zero_grad(set_to_none=True)
    summed_losses(network, samples, device, precision).backward()
    optimizer.step()


def summed_losses(
    network: nn.Module, samples: Sequence[Any], device: torch.device, precision: Precision
) -> Tensor:
    """Return the sum of the losses, in float32."""
    dtype = torch.float16 if precision == "float16" else torch.bfloat16
    with torch.autocast(device.type, dtype, enabled=precision != "float32"):
        losses: dict[str, Tensor] = network(samples)
    return torch.stack([loss.float() for loss in losses.values()]).sum()
