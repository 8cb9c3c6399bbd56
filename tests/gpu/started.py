"""Pre-training and worker processes for tests.

Recipes train on generated images, on a device.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import torch
from torch import nn

from pretrain.command import parse
from pretrain.data.images import TrainingImages
from pretrain.data.listing import find_images
from pretrain.job import Job, prepare
from pretrain.method import Method
from pretrain.recipes import RECIPES
from pretrain.running.processes import Process
from tests.pretrain.pixels.photographs import as_jpeg, photograph

NUM_CLASSES = 10
"""Number of image folders: the classes of the small supervised recipes."""

SMALL_VIEWS = ("--small-size-px", "24")
"""Small views with several pixels in a ResNet's last stage.

From a single pixel, torch 2.15 computes wrong gradients of bfloat16 convolutions with a stride on
CPUs.
"""


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Device of a test, and its output folder."""

    device: torch.device
    folder: Path

    @property
    def on_gpu(self) -> bool:
        """Return whether a GPU computes; on a CPU the settings are smaller."""
        return self.device.type == "cuda"

    @property
    def process(self) -> Process:
        """Return a run's only process on this device."""
        return Process(device=self.device)


def small_images(workspace: Workspace) -> TrainingImages:
    """Return forty images of 48 x 40 px in ten folders.

    Existing images are kept.
    """
    for number in range(40):
        file = workspace.folder / "images" / f"class{number % NUM_CLASSES}" / f"{number:04}.jpg"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(as_jpeg(photograph(40, 48, number)))
    return find_images(workspace.folder / "images")


def start_job(
    name: str,
    workspace: Workspace,
    images: TrainingImages,
    *options: str,
    out: str = "run",
    process: Process | None = None,
) -> Job:
    """Return the job of a recipe on these images, with further options.

    process: one of several; otherwise the run has one.
    """
    args = ["--data", str(images.folder), "--out", str(workspace.folder / out)]
    args += ["--device", workspace.device.type, "--workers", "0"]
    config = RECIPES[name].config
    if getattr(config, "num_small_views", 0):
        args += SMALL_VIEWS
    args += options
    if "num_images" in {field.name for field in fields(config)}:
        args += ["--num-images", str(len(images))]
    return prepare(name, parse(name, args), process or workspace.process, images)


def smooth(method: Method) -> Method:
    """Replace ReLU by SiLU and max pooling by mean, in place.

    The mean has no padding: with padding, torch 2.11 computes wrong gradients of it on GPUs in
    channels_last.
    """
    replacements: dict[type[nn.Module], Callable[[nn.Module], nn.Module]] = {
        nn.ReLU: lambda _: nn.SiLU(),
        nn.MaxPool2d: lambda _: nn.AvgPool2d(kernel_size=2),
    }
    for module in list(method.modules()):
        for name, child in list(module.named_children()):
            if type(child) in replacements:
                setattr(module, name, replacements[type(child)](child))
    return method


ROOT = Path(__file__).parents[2]
MOST_PROCESSES = 8
LIMIT_S = 400
"""Seconds after which processes count as stuck.

On a busy CPU they start slowly.
"""


def launch(module: str, device: torch.device, folder: Path) -> int:
    """Run `python -m MODULE DEVICE FOLDER` in all processes; return their number.

    Skips with one GPU. If they fail, it raises CalledProcessError or TimeoutExpired, and all
    processes have ended.
    """
    number = min(torch.cuda.device_count(), MOST_PROCESSES) if device.type == "cuda" else 2
    if number == 1:
        pytest.skip("one GPU")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(number), "-m", module, device.type, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    if device.type == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    subprocess.run(command, check=True, env=environment, timeout=LIMIT_S)
    return number
