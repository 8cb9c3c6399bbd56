"""The backbone file and the encoder file, all that evaluation gets from pre-training."""

import json
import platform
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy
import torch
import torchvision
from safetensors.torch import save as safetensors_bytes
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pretrain import checkpoint
from pretrain.data.views import ViewRecipe
from pretrain.parts.resnet import BranchedResNet
from pretrain.parts.view import Stem
from pretrain.running.atomic_files import write_whole

FORMAT = "ssl-backbone/1"
ENCODER_FORMAT = "ssl-encoder/1"


def export(
    path: Path,
    backbone: nn.Module,
    *,
    arch: str,
    stem: Stem,
    views: ViewRecipe,
    made_by: dict[str, object],
    projectors: Sequence[nn.Module] = (),
) -> None:
    """Write a backbone's tensors in float32 under torchvision's names, its input and its origin.

    Projectors, one per head, make it an encoder file with "projectors", a list of what
    `describe_projectors` says. The suffix .safetensors selects that format, with everything but the
    tensors as JSON in its header. Any other suffix gives plain tensors and values for torch.load
    with weights_only.
    """
    tensors = {name: plain_tensor(value) for name, value in backbone.state_dict().items()}
    description: dict[str, object] = {
        "format": ENCODER_FORMAT if projectors else FORMAT,
        "arch": arch,
        "stem": stem,
        "input": {
            "mean": list(views.mean),
            "std": list(views.std),
            "size": views.size_px,
            "channels": "RGB",
        },
        "made_by": made_by,
    }
    if projectors:
        description["projectors"] = describe_projectors(backbone, projectors)
    if path.suffix == ".safetensors":
        header = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in description.items()
        }
        write_whole(path, safetensors_bytes(tensors, metadata=header))
        return
    checkpoint.save(path, {**description, "state_dict": tensors})


def versions() -> dict[str, str]:
    """Return the versions of the libraries that affect a run's numbers."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torchvision": str(torchvision.__version__),
        "numpy": numpy.__version__,
    }


def commit() -> str:
    """Return this source tree's commit, with "+" if files have changed; "unknown" outside git.

    An installed copy of this package may lie in another repository, whose commit says nothing.
    """
    root = Path(__file__).parents[1]

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != root.resolve():
            return "unknown"
        return git("describe", "--always", "--dirty=+", "--abbrev=12")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


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
        # all branches have one width, and their features stand side by side
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
        # the tanh approximation has other values, so it would need a kind of its own
        case nn.GELU(approximate="none"):
            yield {"kind": "gelu"}
        case _:
            raise ValueError(
                f"a projector has a layer {module}, which encoder.pt cannot describe; describe it "
                f"in pretrain/export.py and apply it in transfer/encoders/projector.py"
            )


def plain_tensor(value: Tensor) -> Tensor:
    """Return a copy on the CPU, contiguous, float32 if it holds floats."""
    plain = value.detach().float() if value.is_floating_point() else value.detach()
    # torch.save writes all that a view is a part of, and a plain clone keeps channels last
    return plain.cpu().clone(memory_format=torch.contiguous_format)


def _tensors(**tensors: Tensor | None) -> Layer:
    """Return copies of the tensors that a layer has."""
    return {name: plain_tensor(value) for name, value in tensors.items() if value is not None}
