"""Measure evaluations: features, a linear probe, and fine-tuning steps.

Images are generated in memory, so that neither the disk nor decoding is measured. On a CPU,
everything is small.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.gpu.timing import (
    Measurement,
    Quantities,
    first_that_fits,
    seconds_per_call,
    with_peak_memory,
    write_images,
)
from pretrain.running.host_memory import image_memory
from transfer.datasets.images import read_class_folders
from transfer.detection.detector import Detector, Sample
from transfer.detection.engines import EngineName, build_detector
from transfer.detection.recipe import DetectorRecipe
from transfer.encoders.architectures import Stem
from transfer.encoders.encoder import Encoder, random_backbone
from transfer.encoders.encoder import Precision as FeaturePrecision
from transfer.finetuning.classification import Classifier, Crops
from transfer.finetuning.loop import measured_convolutions, move_to_device
from transfer.finetuning.schedule import Precision
from transfer.frozen.crops import RandomCrops
from transfer.frozen.extraction import EvalImages, raw_batches
from transfer.frozen.image_cache import with_cached_pixels
from transfer.frozen.network import forward, frozen_network
from transfer.frozen.probe_training import ProbeTraining
from transfer.frozen.running_probe import HeadOptimizer, new_heads
from transfer.frozen.transforms import EvalTransform, Normalization
from transfer.process_state import one_thread
from transfer.segmentation.network import FCN, build_network
from transfer.segmentation.recipe import VOC_FCN
from transfer.segmentation.samples import Sample as Crop
from transfer.tasks import semi_supervised
from transfer.tasks.detection import TASKS

DETECTORS = {key: task.recipe for key, task in TASKS.items()}
"""Recipes by task key."""
SETTINGS = semi_supervised.TASKS["cifar10_semi_1pct"].fine_tuning(num_images=1000, rate=0.1)
"""Settings of the classifier's optimizer; the number of steps is not used."""
NUM_CLASSES = 21
PRECISIONS: tuple[Literal["float32", "bfloat16"], ...] = ("float32", "bfloat16")


class TrainingSetup(NamedTuple):
    """A network, its optimizer, and the samples on which every step trains."""

    network: nn.Module
    optimizer: torch.optim.SGD
    samples: Sequence[Any]


def training_step(setup: TrainingSetup, device: torch.device, precision: Precision) -> None:
    """Run one training step without reading a result from the device."""
    setup.optimizer.zero_grad(set_to_none=True)
    summed_losses(setup.network, setup.samples, device, precision).backward()
    setup.optimizer.step()


def summed_losses(
    network: nn.Module, samples: Sequence[Any], device: torch.device, precision: Precision
) -> Tensor:
    """Return the sum of the losses, in float32."""
    dtype = torch.float16 if precision == "float16" else torch.bfloat16
    with torch.autocast(device.type, dtype, enabled=precision != "float32"):
        losses: dict[str, Tensor] = network(samples)
    return torch.stack([loss.float() for loss in losses.values()]).sum()


def training_throughput(
    make: Callable[[torch.device, int], TrainingSetup],
    sizes: Sequence[int],
    key: str,
    device: torch.device,
    folder: Path,
) -> Quantities:
    """Measure training steps with the largest batch that fits, in each precision.

    key: name of the training in `transfer.hours`. make: function of device and number of images.
    """
    on_gpu = device.type == "cuda"
    warm_up, calls = (2, 5) if on_gpu else (1, 1)

    def measure(precision: Precision, images: int) -> Quantities:
        setup = make(device, images)
        setup.network.train()
        step = partial(training_step, setup, device, precision)
        time = partial(seconds_per_call, step, device, warm_up=warm_up, calls=calls)
        with measured_convolutions(device, one_size=key not in DETECTORS):
            seconds, memory = with_peak_memory(time, device)
        return {
            f"s per image, {key} {precision}": seconds / images,
            f"images per pass in {precision}": float(images),
            f"peak memory GB in {precision}": memory,
        }

    quantities: Quantities = {}
    for precision in PRECISIONS:
        quantities |= first_that_fits(partial(measure, precision), sizes if on_gpu else (2,))
    return quantities


def frozen_features(
    backbone: Encoder, device: torch.device
) -> tuple[Callable[[], Tensor], int, int]:
    """Return a forward pass on noise, batch size and number of calls.

    As in an extraction, the pixels are uploaded as bytes and normalized on the device.
    """
    batch, px, calls = (256, 224, 10) if device.type == "cuda" else (4, 64, 1)
    network, normalize = frozen_network(backbone), Normalization(backbone.input, device)
    generator = torch.Generator().manual_seed(5)
    raw = torch.randint(256, (batch, px, px, 3), dtype=torch.uint8, generator=generator)
    pixels = (raw.pin_memory() if device.type == "cuda" else raw).permute(0, 3, 1, 2)
    return lambda: forward(network, normalize(pixels)), batch, calls


def feature_throughput(
    arch: str, precision: FeaturePrecision, device: torch.device, folder: Path
) -> Quantities:
    """Measure the throughput of frozen features, which are read back as in an extraction."""
    backbone = replace(random_backbone(arch=arch, stem="imagenet", seed=0), precision=precision)
    features, batch, calls = frozen_features(backbone, device)
    seconds = seconds_per_call(lambda: features().cpu(), device, warm_up=3, calls=calls)
    return {
        "images/s": batch / seconds,
        f"s per image, forward {arch} {precision}": seconds / batch,
    }


def probe_throughput(device: torch.device, folder: Path) -> Quantities:
    """Measure the throughput of linear probes with seven learning rates."""
    on_gpu = device.type == "cuda"
    classes = 1000 if on_gpu else 10
    precision: FeaturePrecision = "bfloat16" if on_gpu else "float32"
    backbone = random_backbone(arch="resnet50", stem="imagenet", seed=0)
    features, batch, calls = frozen_features(replace(backbone, precision=precision), device)
    rates = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    training = ProbeTraining(learning_rates=rates, steps=100, batch_size=batch)
    heads = new_heads(rates, classes, backbone.feature_dim, training.weight_std, seed=0)
    optimizer = HeadOptimizer(heads, training, device)
    labels = torch.arange(batch) % classes

    def step() -> None:
        optimizer.step(features(), labels.to(device), 0.5)

    seconds = seconds_per_call(step, device, warm_up=3, calls=calls)
    return {"s per image, crop": seconds / batch, "precision": precision}


def core_throughput(device: torch.device, folder: Path) -> Quantities:
    """Measure how many images per second one core decodes for frozen networks."""
    number, px = (64, 224) if device.type == "cuda" else (2, 64)
    (folder / "class").mkdir()
    write_images(folder / "class", number)
    images = read_class_folders(folder, folder, ["class"])
    decoded = EvalImages(images, EvalTransform.center(px, margin_px=32))
    with image_memory(1e3):
        cached = with_cached_pixels(images, num_crops=2 * number)
    indices = [(index, index) for index in range(number)]
    readers: dict[str, Callable[[], object]] = {
        "decode": lambda: list(raw_batches(decoded, 0, pinned=False)),
        "decode crop": partial(RandomCrops(images, px, 0), indices),
        "kept crop": partial(RandomCrops(cached, px, 0), indices),
    }
    with one_thread():
        return {
            f"s per image, {key}": seconds_per_call(read, device, warm_up=1, calls=3) / number
            for key, read in readers.items()
        }


def classifier_training(device: torch.device, images: int) -> TrainingSetup:
    """Return the training of a backbone and a linear classifier."""
    if device.type == "cuda":
        return new_classifier("resnet50", 224, 1000, device, images)
    return new_classifier("resnet18", 64, 4, device, images)


def new_classifier(
    arch: str, px: int, num_classes: int, device: torch.device, images: int, stem: Stem = "imagenet"
) -> TrainingSetup:
    """Return a classifier on a random backbone, and a micro-batch of noise."""
    backbone = random_backbone(arch=arch, stem=stem, seed=0)
    network = Classifier(backbone, num_classes=num_classes, seed=0).to(device)
    noise = np.random.default_rng(0).integers(256, size=(images, px, px, 3), dtype=np.uint8)
    pixels = torch.from_numpy(noise).permute(0, 3, 1, 2)
    samples = Crops(pixels=pixels, labels=torch.arange(images) % num_classes)
    return TrainingSetup(network, network.optimizer(SETTINGS), [samples.to(device)])


def segmentation_training(device: torch.device, images: int) -> TrainingSetup:
    """Return the training of the segmentation network at its crop size."""
    arch, px, channels = "resnet18", 65, 32
    if device.type == "cuda":
        arch, px, channels = "resnet50", VOC_FCN.crop_px, VOC_FCN.head_channels
    network = new_fcn(arch, px=px, head_channels=channels)
    move_to_device(network, device)
    samples = [crop.to(device) for crop in fixed_crops(images, px)]
    return TrainingSetup(network, network.optimizer(VOC_FCN), samples)


def new_fcn(arch: str, *, px: int, head_channels: int) -> FCN:
    """Return an untrained segmentation network on a random backbone."""
    recipe = replace(VOC_FCN, crop_px=px, head_channels=head_channels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = build_network(recipe, arch=arch, num_classes=NUM_CLASSES, norm="BN")
    network.load_backbone(random_backbone(arch=arch, stem="imagenet", seed=0).state_dict)
    return network


def fixed_crops(count: int, px: int) -> list[Crop]:
    """Return noise crops with random classes and an ignored border."""
    generator = torch.Generator().manual_seed(7)
    samples = []
    for _ in range(count):
        squares = torch.randint(NUM_CLASSES, (px // 8 + 1,) * 2, generator=generator)
        mask = squares.repeat_interleave(8, 0).repeat_interleave(8, 1)[:px, :px].to(torch.uint8)
        mask[:2] = 255
        image = torch.randint(256, (3, px, px), dtype=torch.uint8, generator=generator)
        samples.append(Crop(image=image, mask=mask))
    return samples


def detector_training(key: str, device: torch.device, images: int) -> TrainingSetup:
    """Return the training of a detector at the recipe's image sizes."""
    recipe, arch = DETECTORS[key], "resnet50"
    if device.type != "cuda":
        recipe, arch = recipe.tiny(), "resnet18"
    detector = new_detector(recipe, "torchvision", arch, 20 if recipe.neck == "c4" else 80)
    samples = large_samples(recipe, images)
    return detector_setup(detector, recipe, samples, device, learning_rate=1e-4)


def detector_setup(
    detector: Detector,
    recipe: DetectorRecipe,
    samples: Sequence[Sample],
    device: torch.device,
    *,
    learning_rate: float,
) -> TrainingSetup:
    """Return a detector with a learning rate too small to diverge."""
    move_to_device(detector, device)
    optimizer = detector.optimizer(replace(recipe, learning_rate=learning_rate))
    return TrainingSetup(detector, optimizer, [sample.to(device) for sample in samples])


def new_detector(
    recipe: DetectorRecipe, engine: EngineName, arch: str, num_classes: int
) -> Detector:
    """Return an untrained detector on a random backbone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        detector = build_detector(engine, recipe, arch=arch, num_classes=num_classes, norm="BN")
    detector.load_backbone(random_backbone(arch=arch, stem="imagenet", seed=0).state_dict)
    return detector


def large_samples(recipe: DetectorRecipe, count: int) -> list[Sample]:
    """Return noise images with seven objects each, as in COCO.

    They have the recipe's mean size and an aspect ratio of 4:3. Masks are the rectangles of the
    boxes.
    """
    generator = torch.Generator().manual_seed(9)
    height = round(sum(recipe.train_short_px) / len(recipe.train_short_px))
    width = min(recipe.long_px, round(height * 4 / 3))
    size = torch.tensor([width, height])
    samples = []
    for _ in range(count):
        centers = torch.rand(7, 2, generator=generator) * size
        half_sizes = height * (0.02 + 0.2 * torch.rand(7, 2, generator=generator))
        top_left = (centers - half_sizes).clamp_min(0)
        bottom_right = (centers + half_sizes).min(size)
        boxes = torch.cat([top_left, bottom_right], dim=1)
        positions = torch.rand(7, 17, 2, generator=generator)
        points = top_left[:, None] + positions * (bottom_right - top_left)[:, None]
        outlines = boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].double().numpy()
        sample = Sample(
            image=torch.randint(256, (3, height, width), dtype=torch.uint8, generator=generator),
            boxes=boxes,
            classes=torch.arange(7),
            polygons=tuple((outline,) for outline in outlines),
            keypoints=torch.cat([points, torch.full((7, 17, 1), 2.0)], dim=2),
        )
        samples.append(sample)
    return samples


FEATURES: dict[str, Measurement] = {
    f"{arch} in {precision}": partial(feature_throughput, arch, precision)
    for arch in ("resnet18", "resnet50")
    for precision in PRECISIONS
}
TRAININGS: dict[str, Measurement] = {
    "classifier": partial(training_throughput, classifier_training, (256, 128, 64), "classifier"),
    "voc12_seg_fcn": partial(
        training_throughput, segmentation_training, (16, 8, 4, 2), "voc12_seg_fcn"
    ),
    **{
        key: partial(training_throughput, partial(detector_training, key), (16, 8, 4, 2), key)
        for key in sorted({task.work for task in TASKS.values()})
    },
}
"""Measurements by name."""
