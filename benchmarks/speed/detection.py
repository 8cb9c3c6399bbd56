"""A training step of both detection engines on the same batch, with the memory that it takes.

Without detectron2 only the torchvision engine is measured. The images are generated.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.speed.harness import Comparison
from transfer.backbone import random_backbone
from transfer.datasets.catalog import open_scenes
from transfer.datasets.synthetic.generate import generate
from transfer.detection.engines import HOW_TO_INSTALL, EngineName, build_detector, is_available
from transfer.detection.recipe import COCO_FPN, COCO_FPN_KEYPOINTS, COCO_FPN_MASKS, VOC_C4
from transfer.detection.samples import training_sample
from transfer.detection.train import sgd
from transfer.finetuning.schedule import learning_rate, set_rate
from transfer.frozen.network import device

TASKS = {
    "coco_det": (COCO_FPN, "coco17"),
    "coco_insseg": (COCO_FPN_MASKS, "coco17"),
    "coco_keypoint": (COCO_FPN_KEYPOINTS, "coco17_keypoints"),
    "voc0712_det_c4": (VOC_C4, "voc0712"),
}
"""Recipe and data set of each task."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    arch: str = "resnet50"
    tasks: tuple[str, ...] = tuple(TASKS)
    images: int = 1
    short_px: int = 256
    """Shorter side of the images; the recipes' 800 take a CPU minutes, as do ..."""
    roi_samples: int = 64
    """... their 512 regions per image that the heads are trained on."""
    rounds: int = 3
    """Number of times that each way is timed."""


def comparisons(settings: Settings) -> Iterator[Comparison]:
    """Yield a comparison per task."""
    engines: tuple[EngineName, ...] = ("detectron2", "torchvision")
    if not is_available():
        engines = ("torchvision",)
        print(f"detectron2 is not installed. {HOW_TO_INSTALL}", file=sys.stderr)
    for task in settings.tasks:
        yield Comparison(
            title=f"training step of {task}, {settings.arch}, images of {settings.short_px} px",
            ways={engine: training(engine, task, settings) for engine in engines},
            num_images=settings.images,
            memory=True,
        )


def training(engine: EngineName, task: str, settings: Settings) -> Callable[[], Tensor]:
    """Return a function that does a training step, with the same regions in each, -> loss ()."""
    published, key = TASKS[task]
    recipe = replace(
        published, roi_samples=settings.roi_samples, train_short_px=(settings.short_px,)
    )
    with tempfile.TemporaryDirectory() as data:
        generate(Path(data), keys=[key])
        scenes = open_scenes(key, Path(data), "trainval")
        samples = [training_sample(scenes, i, recipe, 0) for i in range(settings.images)]
    torch.manual_seed(0)
    detector = build_detector(
        engine, recipe, arch=settings.arch, num_classes=len(scenes.class_names), norm="BN"
    )
    backbone = random_backbone(arch=settings.arch, stem="imagenet", seed=0)
    detector.load_backbone(backbone.state_dict)
    network = detector.network.to(device()).train()
    optimizer = sgd(detector, recipe)
    set_rate(optimizer, learning_rate(recipe, 0))

    def step() -> Tensor:
        torch.manual_seed(0)
        loss = torch.stack(list(network(samples).values())).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
