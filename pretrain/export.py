"""The backbone file and the encoder file, all that evaluation gets from pre-training."""

import io
import json
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy
import torch
import torchvision
from safetensors.torch import save as safetensors_bytes
from torch import nn

from pretrain.data.views import ViewRecipe
from pretrain.parts.choices import Stem
from pretrain.projector_layers import describe_projectors, plain_tensor
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
) -> None:
    """Write a backbone's tensors in float32 under torchvision's names, its input and its origin.

    The suffix .safetensors selects that format, with everything but the tensors as JSON in its
    header. Any other suffix gives plain tensors and values for torch.load with weights_only.
    """
    tensors = _plain_tensors(backbone)
    description = _description(FORMAT, arch, stem, views, made_by)
    if path.suffix == ".safetensors":
        header = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in description.items()
        }
        write_whole(path, safetensors_bytes(tensors, metadata=header))
        return
    _save(path, {**description, "state_dict": tensors})


def export_encoder(
    path: Path,
    backbone: nn.Module,
    projectors: Sequence[nn.Module],
    *,
    arch: str,
    stem: Stem,
    views: ViewRecipe,
    made_by: dict[str, object],
) -> None:
    """Write the fields of the backbone file and "projectors", a list with one item per head.

    `describe_projectors` says what an item holds.
    """
    content = {
        **_description(ENCODER_FORMAT, arch, stem, views, made_by),
        "projectors": describe_projectors(backbone, projectors),
        "state_dict": _plain_tensors(backbone),
    }
    _save(path, content)


def _plain_tensors(network: nn.Module) -> dict[str, torch.Tensor]:
    """Return the tensors of a network on the CPU, contiguous, floats as float32."""
    return {name: plain_tensor(value) for name, value in network.state_dict().items()}


def _description(
    format: str, arch: str, stem: Stem, views: ViewRecipe, made_by: dict[str, object]
) -> dict[str, object]:
    """Return the fields of a file other than its tensors."""
    return {
        "format": format,
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


def _save(path: Path, content: dict[str, object]) -> None:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    # the buffer's own memory, where getvalue would copy the whole file
    write_whole(path, buffer.getbuffer())


def versions() -> dict[str, str]:
    """Return the versions of the libraries that affect a run's numbers."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torchvision": str(torchvision.__version__),
        "numpy": numpy.__version__,
    }


def commit() -> str:
    """Return this source tree's commit, with "+" if files have changed; "unknown" outside git."""
    folder = Path(__file__).parent
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answer.stdout.strip()
