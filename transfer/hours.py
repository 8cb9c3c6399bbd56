"""Hours of tasks: one table of the seconds that an image takes, and what a network costs.

A task says how many images of which kind of work it has (`Task.units`). `make gpu-check` measures
seconds on this machine's GPU and stores them in a file below --runs; all others are assumed.

Kinds of work: "forward", an image of 224 px through a frozen network; "map", the same where the
encoder's own size is another; "crop", a crop of a linear probe; and trainings of the whole network
with their precision, such as "coco_det float32". A core takes the seconds of "decode", "decode
crop" and "kept crop" for a photograph of 500 x 375 px and its crop of 224 px.
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
"""Seconds per image of a ResNet-50 on one GPU or of a core, where they are not measured. Cores:
docs/explanation/speed.md. Detectors: detectron2's
R50 1x recipes (its model zoo: 16 images in 0.551, 0.210, 0.261 and 0.315 s on eight V100; newer
GPUs are faster). The arithmetic of a segmentation crop of 513 px is a fifth of a Faster R-CNN's."""
IMAGE_GB = {
    "classifier": 0.086,
    "voc0712_det_c4": 2.4,
    "coco_det": 1.5,
    "coco_insseg": 1.7,
    "coco_keypoint": 2.5,
    "voc12_seg_fcn": 0.53,
}
"""Memory in GB per image of a training step on a ResNet-50 in float32. Detectors: the model zoo's,
whose norms are frozen; trained ones keep more."""
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
"""Arithmetic of a forward pass in units of a ResNet-50's (torchvision's table of GFLOPS)."""
LAYER4_COST = {"resnet18": 0.10, "resnet34": 0.16}
"""Arithmetic of layer4 alone, in the same unit; 0.20 for networks with bottlenecks."""
STEM_COST: dict[Stem, float] = {
    "imagenet": 1.0,
    "imagenet-nopool": 4.0,
    "cifar": 15.0,
    "cifar-maxpool": 4.0,
    "cifar-pad2": 15.0,
}
"""Arithmetic of a network with each stem in units of the ImageNet stem's."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Seconds per image that were measured on one kind of GPU."""

    gpu: str = ""
    """Name of the GPU; empty if nothing was measured."""
    date: str = ""
    """Date of the measurement, such as 2026-11-22."""
    commit: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds by kind of work, all of a ResNet-50 but "forward ARCHITECTURE PRECISION". A "crop" is
    in bfloat16."""

    @property
    def source(self) -> str:
        """Return a plan's clause on where hours come from; some may be assumed beside these."""
        return f"measured on {self.gpu}, {self.date}" if self.gpu else "assumed, see make gpu-check"


def measured_seconds(runs: Path) -> Measured:
    """Return what was measured below --runs; ValueError if the file is damaged."""
    path = runs / FILE
    try:
        return Measured(**json.loads(path.read_text()))
    except FileNotFoundError:
        return Measured()
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path}: not measured seconds ({error}). Delete it; make gpu-check measures them again"
        ) from error


def save_seconds(runs: Path, measured: Measured) -> None:
    """Store what was measured for later plans."""
    write_text(runs / FILE, json.dumps(asdict(measured), indent=1) + "\n", "--runs")


def gpu_hours(
    units: Mapping[str, float], backbone: Encoder, measured: Measured | None = None
) -> float:
    """Return the estimated hours on one GPU.

    units: number of images by kind of work. Those of detection and segmentation are images of the
    recipe's size; all others are of the backbone's.
    """
    known = (measured or Measured()).seconds
    seconds = (images * _seconds(kind, backbone, known) for kind, images in units.items())
    return sum(seconds) / 3600


def core_hours(
    units: Mapping[str, float],
    backbone: Encoder,
    measured: Measured | None = None,
    *,
    kept: bool = False,
) -> float:
    """Return the estimated hours in which one core makes the pixels for a frozen network.

    kept: the training images are decoded once and stay in memory.
    """
    known = {**ASSUMED, **(measured or Measured()).seconds}
    kinds = {"forward": "decode", "crop": "kept crop" if kept else "decode crop"}
    seconds = sum(units.get(kind, 0.0) * known[work] for kind, work in kinds.items())
    # images of small networks are small as well, such as those of CIFAR
    seconds *= min(1.0, (backbone.input.size_px / 224) ** 2)
    return (seconds + units.get("map", 0.0) * known["decode"]) / 3600


def _seconds(kind: str, backbone: Encoder, known: Mapping[str, float]) -> float:
    """Return the seconds of one image of the backbone."""
    name, _, precision = kind.partition(" ")
    if name == "map":  # images of 224 px, whatever the encoder's own size
        return _seconds("forward", backbone, known) * (224 / backbone.input.size_px) ** 2
    if name in ("forward", "crop"):
        network = backbone.arch.partition("-heads")[0]
        own, reference = (f"forward {a} {backbone.precision}" for a in (network, "resnet50"))
        if own in known:
            seconds = known[own] / FORWARD_COST.get(network, 1.0)
        else:
            seconds = known.get(reference, ASSUMED["forward"])
        if name == "crop" and "crop" in known:
            # a probe of a ResNet-50 takes more than its forward passes
            seconds *= known["crop"] / known.get("forward resnet50 bfloat16", ASSUMED["forward"])
        return seconds * image_cost(backbone)
    # float16 takes the time of bfloat16, whose products have the same size
    same = kind.replace("float16", "bfloat16") if precision == "float16" else kind
    seconds = known.get(same, ASSUMED[name.partition("@")[0]])
    cost = image_cost(backbone) if name == "classifier" else network_cost(backbone)
    return seconds * cost


def network_cost(backbone: Encoder) -> float:
    """Return the arithmetic of a ResNet's forward pass, in units of a ResNet-50's."""
    network, num_heads = network_and_heads(backbone.arch)
    cost = FORWARD_COST.get(network, 1.0)
    cost += max(0, num_heads - 1) * LAYER4_COST.get(network, 0.20)
    return cost * STEM_COST[backbone.stem]


def image_cost(backbone: Encoder) -> float:
    """Return the arithmetic of an image of the backbone, in units of a ResNet-50's at 224 px."""
    if not backbone.is_resnet:
        return backbone.cost
    return network_cost(backbone) * (backbone.input.size_px / 224) ** 2
