"""The backbone file, all that evaluation gets from pre-training."""

import io
import json
import platform
import subprocess
from pathlib import Path

import numpy
import torch
import torchvision
from safetensors.torch import save as safetensors_bytes
from torch import nn

from pretrain.data.views import ViewRecipe
from pretrain.parts.choices import Stem
from pretrain.running.checkpoint import write_atomically

FORMAT = "ssl-backbone/1"


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
    tensors = {
        name: (value.detach().float() if value.is_floating_point() else value.detach())
        .cpu()
        .clone(memory_format=torch.contiguous_format)
        for name, value in backbone.state_dict().items()
    }
    description: dict[str, object] = {
        "format": FORMAT,
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
    if path.suffix == ".safetensors":
        header = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in description.items()
        }
        write_atomically(path, safetensors_bytes(tensors, metadata=header))
        return
    buffer = io.BytesIO()
    torch.save({**description, "state_dict": tensors}, buffer)
    write_atomically(path, buffer.getbuffer())


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
