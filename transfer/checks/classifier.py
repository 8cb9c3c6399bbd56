"""The time of a step that trains a backbone and a linear classifier."""

from functools import partial

import numpy as np
import torch

from transfer.backbone import random_backbone
from transfer.checks.report import Facts, Place
from transfer.checks.speed import first_that_fits, seconds_per_call, with_peak_memory
from transfer.checks.training_step import training_step
from transfer.finetuning.classification import Classifier, Crops, FineTuning
from transfer.finetuning.gpu import measured_convolutions
from transfer.finetuning.schedule import Precision

COURSE = FineTuning(
    iterations=4,
    milestones=(),
    decay=0.1,
    learning_rate=1e-3,
    batch_size=4,
    precision="float32",
    head_factor=10.0,
    sgd_momentum=0.9,
    weight_decay=1e-4,
    crop_px=64,
)


def measure_steps(place: Place) -> Facts:
    """Measure the seconds of a step on crops that are in memory; none is decoded."""
    facts: Facts = {"crops": "generated in memory: no disk and no decoding is measured"}
    for precision in ("float32", "bfloat16"):
        measure = partial(_measure_batch, place, precision)
        facts |= first_that_fits(measure, (4,) if place.small else (256, 128, 64))
    return facts


def _measure_batch(place: Place, precision: Precision, images: int) -> Facts:
    device = torch.device(place.device)
    arch, px, classes = ("resnet18", 64, 4) if place.small else ("resnet50", 224, 1000)
    network = new_classifier(arch, classes, device)
    samples = noise_samples(images, px, classes, device)
    step = partial(
        training_step, network.train(), network.optimizer(COURSE), samples, device, precision
    )
    calls = 1 if place.small else 5
    with measured_convolutions(device, one_size=True):
        seconds, memory = with_peak_memory(
            partial(seconds_per_call, step, device, warm_up=calls, calls=calls), device
        )
    return {
        f"seconds per iteration in {precision}": seconds,
        f"images per pass in {precision}": float(images),
        f"images/s in {precision}": images / seconds,
        f"peak memory GB in {precision}": memory,
    }


def new_classifier(arch: str, num_classes: int, device: torch.device) -> Classifier:
    """Return a classifier on a random backbone, on the device."""
    backbone = random_backbone(arch=arch, stem="imagenet", seed=0)
    return Classifier(backbone, num_classes=num_classes, seed=0).to(device)


def noise_samples(count: int, px: int, num_classes: int, device: torch.device) -> list[Crops]:
    """Return crops of noise on the device, stacked as those of a pass."""
    noise = np.random.default_rng(0).integers(256, size=(count, px, px, 3), dtype=np.uint8)
    pixels = torch.from_numpy(noise).permute(0, 3, 1, 2)
    return [Crops(pixels=pixels, labels=torch.arange(count) % num_classes).to(device)]
