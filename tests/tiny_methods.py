"""Every method and its run in milliseconds: small settings, network and images."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d
from torchvision.models import ResNet
from torchvision.models.resnet import BasicBlock

from pretrain.command import Command
from pretrain.data.bad_images import FILE_NAME, BadImages
from pretrain.data.feed import Batch, Feed
from pretrain.data.images import BatchPlan, TrainingImages
from pretrain.job import Job
from pretrain.method import Method
from pretrain.methods import METHODS
from pretrain.recipes import RECIPES, Recipe
from pretrain.running.processes import Process

LEARNING = [name for name in METHODS if name != "random"]
"""Methods that learn, so all but random."""
IDLE = {"nnclr": ["encoder.1.7.bias"]}
"""Parameters without effect.

The norm of NNCLR's predictor cancels a shift of its input.
"""
WIDTHS = (8, 8, 16, 32)
SMALLER = {
    "queue_size": 32,
    "embedding_dim": 8,
    "hidden_dim": 16,
    "predictor_dim": 16,
    "num_classes": 2,
    "num_images": 20,
    "num_prototypes": 16,
    "output_dim": 16,
    "num_negatives": 8,
}
OPTIONS: dict[str, dict[str, Any]] = {
    # the networks and views that only options of UniCLR bring
    "simaffinity": {"momentum_encoder": True, "predictor": True, "num_small_views": 2},
    # sums over far fewer features than elsewhere
    "barlow_twins": {"loss_scale": 0.5},
    "zero_cl": {"loss_scale": 0.2, "ridge": 0.1},
    "wmse": {"whitening_size": 4, "ridge": 0.5},
}


def thin_resnet(norm: type[nn.Module] = nn.BatchNorm2d) -> ResNet:
    """A thin ResNet: (n, 3, H, W) -> (n, 32).

    Torchvision's, with one block per stage and the cifar stem's stride. With nn.Identity as norm,
    the result of an image cannot depend on the others in its batch.
    """
    with torch.device("meta"):
        network = ResNet(BasicBlock, [1, 1, 1, 1], norm_layer=norm)  # a frame to be filled
    network.inplanes = WIDTHS[0]
    network.conv1 = nn.Conv2d(3, WIDTHS[0], kernel_size=3, padding=1, bias=False)
    network.bn1 = norm(WIDTHS[0])
    for stage, width in enumerate(WIDTHS, start=1):
        blocks = network._make_layer(BasicBlock, width, 1, stride=1 if stage == 1 else 2)
        setattr(network, f"layer{stage}", blocks)
    network.fc = nn.Identity()
    return network


def tiny_config(name: str) -> Any:
    """The smoke recipe's settings, with smaller sizes."""
    config = RECIPES[f"{name}/smoke"].config
    expected = {field.name for field in fields(config)}
    smaller = {key: value for key, value in SMALLER.items() if key in expected}
    return replace(config, **smaller | OPTIONS.get(name, {}))


def tiny_method(
    name: str, *, seed: int = 0, norm: type[nn.Module] = nn.BatchNorm2d, **changes: Any
) -> Any:
    """A method on a thin ResNet, initialized from the seed.

    changes: replace some of the tiny settings.
    """
    torch.manual_seed(seed)
    return METHODS[name](thin_resnet(norm), WIDTHS[-1], replace(tiny_config(name), **changes))


def tiny_batch(method: Any, *, num_images: int = 8) -> Batch:
    """Equal images for every method, 16 px (small views: 8 px).

    The extras are labels and indices.
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(num_images, 3, 16, 16, generator=generator)
    views: list[Tensor] = []
    for view in method.views:
        observed = images + 0.5 * torch.randn(images.shape, generator=generator)
        views.append(avg_pool2d(observed, 2) if view.small else observed)
    indices = torch.arange(num_images)
    extras = []
    if method.num_classes > 0:
        extras.append(indices % 2)
    if method.num_images > 0:
        extras.append(indices)
    return Batch(views, extras)


def tiny_job(
    method: Method,
    recipe: Recipe[Any],
    images: TrainingImages,
    folder: Path,
    *,
    device: str = "cpu",
    read_every_steps: int = 1,
    save_every_min: float = 10.0,
) -> Job:
    """A one-process run of a method, named after its smoke recipe."""
    folder.mkdir(exist_ok=True)
    plan = BatchPlan(num_images=len(images), batch_size=recipe.batch_size, seed=0)
    feed = Feed(
        images=images,
        plan=plan,
        recipe=recipe.views,
        views=method.views,
        device=torch.device(device),
        workers=0,
        memory_gb=1.0,
        bad_images=BadImages(images=images, path=folder / FILE_NAME, seed=0, tolerated=0),
        uses_labels=method.num_classes > 0,
        uses_indices=method.num_images > 0,
    )
    return Job(
        name=f"{recipe.method}/smoke",
        command=Command(
            data=images.folder,
            out=folder,
            recipe=recipe,
            read_every_steps=read_every_steps,
            save_every_min=save_every_min,
        ),
        method=method,
        feed=feed,
        num_steps=round(recipe.epochs * plan.steps_per_epoch),
        settings={"recipe": recipe.method},
        process=Process(device=feed.device),
    )


def losses(folder: Path) -> list[tuple[int, float]]:
    """Return steps and losses in the log of a run."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [(line["step"], line["loss"]) for line in lines]


def write_images(folder: Path, count: int = 20) -> Path:
    """Write 24 px noise images of two classes; return their folder."""
    generator = np.random.default_rng(0)
    for number in range(count):
        file = folder / f"class{number % 2}" / f"{number}.png"
        file.parent.mkdir(exist_ok=True)
        Image.fromarray(generator.integers(256, size=(24, 24, 3), dtype=np.uint8)).save(file)
    return folder


def forward(network: nn.Module, batch: Batch, progress: float = 1.0) -> dict[str, Tensor]:
    """Return a method's metrics, called like in the loop."""
    metrics: dict[str, Tensor] = network(batch.views, progress, *batch.extras)
    return metrics


@contextmanager
def stop_after(num_steps: int) -> Iterator[None]:
    """Send a signal during this step of a one-process run."""
    answers = iter([*[False] * (num_steps - 1), True])
    with patch("pretrain.running.stop.is_requested", lambda: next(answers)):
        yield
