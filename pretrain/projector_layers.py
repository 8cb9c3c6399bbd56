"""A projector as a plain list of its layers, which is read without this package."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pretrain.parts.heads import BranchedResNet

Layer = dict[str, object]
"""Plain values and tensors of a layer: "kind", and what that kind needs."""


def describe_projectors(
    backbone: nn.Module, projectors: Sequence[nn.Module]
) -> list[dict[str, object]]:
    """Return "features" and "layers" of each head's projector.

    "features" are the columns [start, stop) of the backbone's output that the projector reads: all
    of them, or those of its own branch of a BranchedResNet.
    """
    described: list[dict[str, object]] = []
    for head, projector in enumerate(projectors):
        first = next(layer for layer in projector.modules() if isinstance(layer, nn.Linear))
        start = head * first.in_features if isinstance(backbone, BranchedResNet) else 0
        columns = [start, start + first.in_features]
        described.append({"features": columns, "layers": list(describe_layers(projector))})
    return described


def describe_layers(module: nn.Module) -> Iterator[Layer]:
    """Yield the layers of a projector in order; ValueError at a layer of an unknown kind."""
    match module:
        case nn.Sequential():
            for child in module:
                yield from describe_layers(child)
        case nn.Linear():
            yield {"kind": "linear"} | _tensors(weight=module.weight, bias=module.bias)
        case _BatchNorm():
            yield {"kind": "batch_norm", "eps": module.eps} | _tensors(
                running_mean=module.running_mean,
                running_var=module.running_var,
                weight=module.weight,
                bias=module.bias,
            )
        case nn.ReLU():
            yield {"kind": "relu"}
        case nn.GELU(approximate="none"):
            yield {"kind": "gelu"}
        case _:
            raise ValueError(
                f"a projector has a layer {module}, which encoder.pt cannot describe; describe it "
                f"in pretrain/projector_layers.py and apply it in transfer/projector.py"
            )


def plain_tensor(value: Tensor) -> Tensor:
    """Return a copy on the CPU, contiguous, float32 if it holds floats."""
    plain = value.detach().float() if value.is_floating_point() else value.detach()
    return plain.cpu().clone(memory_format=torch.contiguous_format)


def _tensors(**tensors: Tensor | None) -> Layer:
    """Return copies of the tensors that a layer has."""
    return {name: plain_tensor(value) for name, value in tensors.items() if value is not None}
