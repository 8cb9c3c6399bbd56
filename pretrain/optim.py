"""Optimizers and learning-rate schedules."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from pretrain.method import Method
from pretrain.recipes import Recipe


def scheduled_rate(recipe: Recipe[Any], done: float, started: float) -> float:
    """Return the learning rate of a step before which the share `done` of the run lies.

    started: the share before the step's epoch, or before the step, as the recipe's unit says. The
    rate grows with each step over the warm-up, whatever the unit. cosine: half a period down to the
    final rate; step: a tenth after each milestone, a share of the run.
    """
    warmup = recipe.warmup_epochs / (recipe.epochs or 1)
    if done < warmup:
        return recipe.learning_rate * done / warmup
    progress = max(started, warmup)
    if recipe.schedule == "step":
        return recipe.learning_rate * 0.1 ** sum(progress >= share for share in recipe.milestones)
    falling = 0.5 * (1 + math.cos(math.pi * ((progress - warmup) / (1 - warmup))))
    span = recipe.learning_rate - recipe.final_learning_rate
    return recipe.final_learning_rate + span * falling


def sgd(network: nn.Module, *, learning_rate: float, momentum: float, weight_decay: float) -> SGD:
    """Return SGD over all trainable parameters, with batch norm and biases decayed as in MoCo."""
    optimizer = SGD(
        split_by_rate([{"params": trainable_parameters(network)}], network),
        lr=learning_rate,
        momentum=momentum,
        weight_decay=weight_decay,
        foreach=True,
    )
    fit_to_device(optimizer)
    return optimizer


def fit_to_device(optimizer: Optimizer) -> None:
    """Give each weight a momentum in its memory layout, and choose SGD's kernels.

    A state that is loaded may come from another device, whose kernels refuse these weights, or from
    weights of another layout, for which kernels take a slow way. Fused SGD of torch 2.15 also fails
    where only some weights have a momentum, as after a thaw, so all start with zeros: the same
    first step.
    """
    for group in optimizer.param_groups:
        if isinstance(optimizer, SGD):
            on_gpu = group["params"][0].is_cuda
            group["foreach"], group["fused"] = not on_gpu, on_gpu or None
        for weight in group["params"] if group["momentum"] or isinstance(optimizer, LARS) else ():
            momentum = optimizer.state[weight].setdefault(
                "momentum_buffer", torch.zeros_like(weight)
            )
            if momentum.stride() != weight.stride():
                own_layout = torch.empty_like(weight).copy_(momentum)
                optimizer.state[weight]["momentum_buffer"] = own_layout


def trainable_parameters(network: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that require gradients; those of a momentum encoder do not."""
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def split_by_rate(groups: list[dict[str, Any]], network: nn.Module) -> list[dict[str, Any]]:
    """Split each group in two: scheduled parameters, then those whose rate follows no schedule.

    The latter are those of the submodules that a method names in `fixed_rate`. Their groups come
    last; empty groups are dropped.
    """
    names = network.fixed_rate if isinstance(network, Method) else ()
    modules = [network.get_submodule(name) for name in names]
    fixed = {parameter for module in modules for parameter in module.parameters()}
    split_groups = [
        {
            **group,
            "params": [weight for weight in group["params"] if (weight in fixed) == is_fixed],
            "fixed_rate": is_fixed,
        }
        for is_fixed in (False, True)
        for group in groups
    ]
    return [group for group in split_groups if group["params"]]


def lars(
    network: nn.Module,
    *,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
    trust_coefficient: float,
    exclude_vectors: bool,
) -> "LARS":
    """Return LARS over all trainable parameters.

    With exclude_vectors biases and batch-norm parameters are neither scaled nor decayed, as in BYOL
    and MoCo v3; otherwise all are, as by apex's LARC in SwAV and LORAC.
    """
    weights = trainable_parameters(network)
    plain = [weight for weight in weights if exclude_vectors and weight.ndim <= 1]
    scaled = [weight for weight in weights if not exclude_vectors or weight.ndim > 1]
    groups = [
        {"params": scaled, "weight_decay": weight_decay, "adaptive": True},
        {"params": plain, "weight_decay": 0.0, "adaptive": False},
    ]
    numbers = {"lr": learning_rate, "momentum": momentum, "trust_coefficient": trust_coefficient}
    optimizer = LARS(split_by_rate(groups, network), numbers)
    fit_to_device(optimizer)
    return optimizer


class LARS(Optimizer):
    """SGD whose step is scaled to the norm of each weight tensor: You et al., arXiv:1708.03888.

    The local rate is trust * |w| / (|g| + decay * |w| + 1e-8), as in apex and timm. It is 1 where a
    weight or its gradient is zero. No step waits for the device.
    """

    # the code of SimCLR, BYOL and Barlow Twins divides by |g + decay * w|, which differs little
    # at decays of 1e-6; where a norm is zero, apex's LARC leaves out the decay as well

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step by the gradients in `.grad`."""
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if not weights:
                continue
            gradients: list[Tensor] = [weight.grad for weight in weights]
            directions = torch._foreach_add(gradients, weights, alpha=group["weight_decay"])
            if group["adaptive"]:
                ratios = self._ratios(group, weights, gradients)
                torch._foreach_mul_(directions, list(ratios.unbind()))
            momenta = [self.state[weight]["momentum_buffer"] for weight in weights]
            torch._foreach_mul_(momenta, group["momentum"])
            torch._foreach_add_(momenta, directions)
            torch._foreach_add_(weights, momenta, alpha=-group["lr"])

    @staticmethod
    def _ratios(group: dict[str, Any], weights: list[Tensor], gradients: list[Tensor]) -> Tensor:
        """Return the local rate (T,) of each of T weights."""
        size = torch.stack(torch._foreach_norm(weights))
        slope = torch.stack(torch._foreach_norm(gradients))
        ratio = group["trust_coefficient"] * size / (slope + group["weight_decay"] * size + 1e-8)
        defined = (size > 0) & (slope > 0)
        return torch.where(defined, ratio, torch.ones_like(ratio))
