"""Estimate the hours of tasks from seconds per image.

A task declares its numbers of images by type of work (`Task.units`). `make gpu-check` measures
seconds on this machine's GPU and stores them in a file in --runs; all others are assumed.

Types of work on a GPU are "forward" (a 224 px image through a frozen network), "map" (the same, for
an encoder of any image size), and "crop" (a crop of a linear probe). Trainings of the complete
network have their precision in the name, such as "coco_det float32". Types of work on a CPU core
are "decode", "decode crop" and "kept crop" (a cached crop), for a JPEG file of 500 x 375 px and its
224 px crop.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pretrain.running.atomic_files import write_text
from transfer.encoders.architectures import Stem, network_and_heads
from transfer.encoders.encoder import Encoder

FILE = "seconds.json"
ASSUMED = {
    "forward": 1 / 2500,
    "classifier": 3 / 2500,
    "voc0712_det_c4": 1 / 3.6,
    "coco_det": 1 / 9.5,
    "coco_insseg": 1 / 7.7,
    "coco_keypoint": 1 / 6.3,
    "voc12_seg_fcn": 1 / 20,
    "decode": 1 / 245,
    "decode crop": 1 / 462,
    "kept crop": 1 / 2799,
}
"""Assumed seconds per image, on one GPU or CPU core.

The network is a ResNet-50. CPU cores: docs/explanation/speed.md. Detectors: detectron2's R50 1x
recipes (its model zoo: 16 images in 0.551, 0.210, 0.261 and 0.315 s on eight V100; newer GPUs are
faster). A 513 px segmentation crop has a fifth of the FLOPs of a Faster R-CNN image.
"""
IMAGE_GB = {
    "classifier": 0.086,
    "voc0712_det_c4": 2.4,
    "coco_det": 1.5,
    "coco_insseg": 1.7,
    "coco_keypoint": 2.5,
    "voc12_seg_fcn": 0.53,
}
"""Memory in GB per image of a ResNet-50 training step in float32.

Detectors: from the model zoo, with frozen norm layers; trained norm layers need more.
"""
FORWARD_COST = {
    "resnet18": 0.44,
    "resnet34": 0.89,
    "resnet101": 1.9,
    "resnet152": 2.8,
    "wide_resnet50_2": 2.8,
    "wide_resnet101_2": 5.6,
    "resnext50_32x4d": 1.03,
    "resnext101_32x8d": 4.0,
    "resnet50w2": 3.9,
    "resnet50w4": 15.0,
}
"""FLOPs of a forward pass relative to a ResNet-50 (torchvision's table)."""
LAYER4_COST = {"resnet18": 0.10, "resnet34": 0.16}
"""FLOPs of layer4 in the same unit; 0.20 for networks with bottlenecks."""
STEM_COST: dict[Stem, float] = {
    "imagenet": 1.0,
    "imagenet-nopool": 4.0,
    "cifar": 15.0,
    "cifar-maxpool": 4.0,
    "cifar-pad2": 15.0,
}
"""FLOPs of a network with each stem relative to the ImageNet stem."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Seconds per image, measured on one type of GPU."""

    gpu: str = ""
    """Name of the GPU; empty without a measurement."""
    date: str = ""
    """Date of the measurement, such as 2026-11-22."""
    commit: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds by type of work, for a ResNet-50.

    Only "forward ARCHITECTURE PRECISION" is for another network. A "crop" is in bfloat16.
    """

    @property
    def source(self) -> str:
        """Return the source of the hours for a plan; values that it lacks are assumed."""
        if self.gpu:
            return f"measured on {self.gpu}, {self.date}"
        return "assumed; to measure them: make gpu-check"


def measured_seconds(runs: Path) -> Measured:
    """Return the measurements in --runs, if any."""
    try:
        return Measured(**json.loads((runs / FILE).read_text()))
    except FileNotFoundError:
        return Measured()


def save_seconds(runs: Path, measured: Measured) -> None:
    """Store measurements for later plans."""
    write_text(runs / FILE, json.dumps(asdict(measured), indent=1) + "\n", "--runs")


def gpu_hours(units: Mapping[str, float], backbone: Encoder, measured: Measured) -> float:
    """Return the estimated hours on one GPU.

    units: number of images by type of work. Images of detection and segmentation have the recipe's
    size; all others have the backbone's size.
    """
    seconds = (
        images * _seconds(kind, backbone, measured.seconds) for kind, images in units.items()
    )
    return sum(seconds) / 3600


def core_hours(
    units: Mapping[str, float], backbone: Encoder, measured: Measured, *, is_cached: bool
) -> float:
    """Return the estimated CPU core hours for decoding and cropping.

    This is the input of a frozen network. is_cached: the training images are decoded once and
    cached in memory.
    """
    seconds_by_work = {**ASSUMED, **measured.seconds}
    cpu_work = {"forward": "decode", "crop": "kept crop" if is_cached else "decode crop"}
    seconds = sum(
        units.get(kind, 0.0) * seconds_by_work[cpu_kind] for kind, cpu_kind in cpu_work.items()
    )
    # images for small networks are small, too, such as CIFAR images
    seconds *= min(1.0, (backbone.input.size_px / 224) ** 2)
    return (seconds + units.get("map", 0.0) * seconds_by_work["decode"]) / 3600


def _seconds(kind: str, backbone: Encoder, seconds_by_work: Mapping[str, float]) -> float:
    """Return the seconds per image of the backbone."""
    name, _, precision = kind.partition(" ")
    if name == "map":  # 224 px images for any encoder
        return _seconds("forward", backbone, seconds_by_work) * (224 / backbone.input.size_px) ** 2
    if name in ("forward", "crop"):
        network = backbone.arch.partition("-heads")[0]
        own_work, reference_work = (
            f"forward {arch} {backbone.precision}" for arch in (network, "resnet50")
        )
        if own_work in seconds_by_work:
            seconds = seconds_by_work[own_work] / FORWARD_COST.get(network, 1.0)
        else:
            seconds = seconds_by_work.get(reference_work, ASSUMED["forward"])
        if name == "crop" and "crop" in seconds_by_work:
            # a linear probe of a ResNet-50 takes longer than its forward passes
            seconds *= seconds_by_work["crop"] / seconds_by_work.get(
                "forward resnet50 bfloat16", ASSUMED["forward"]
            )
        return seconds * image_cost(backbone)
    # float16 takes as long as bfloat16, since its products have the same size
    measured_kind = kind.replace("float16", "bfloat16") if precision == "float16" else kind
    seconds = seconds_by_work.get(measured_kind, ASSUMED[name.partition("@")[0]])
    cost = image_cost(backbone) if name == "classifier" else network_cost(backbone)
    return seconds * cost


def network_cost(backbone: Encoder) -> float:
    """Return the FLOPs of a ResNet's forward pass relative to a ResNet-50."""
    network, num_heads = network_and_heads(backbone.arch)
    cost = FORWARD_COST.get(network, 1.0)
    cost += max(0, num_heads - 1) * LAYER4_COST.get(network, 0.20)
    return cost * STEM_COST[backbone.stem]


def image_cost(backbone: Encoder) -> float:
    """Return the FLOPs per image, relative to a ResNet-50 at 224 px."""
    if not backbone.is_resnet:
        return backbone.cost
    return network_cost(backbone) * (backbone.input.size_px / 224) ** 2
