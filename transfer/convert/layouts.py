"""Names of a ResNet's tensors in checkpoints, and the projects that use them.

A `Scheme` is a way to name the layers. A *layout* is a scheme with a prefix and other tensors that
are typical of a project. Recognition needs the scheme only; the layout is for the report.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from transfer.convert.architectures import STEMS_BY_SHAPE, Stem


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """A translation of torchvision's names."""

    name: str
    conv1: str = "conv1"
    bn1: str = "bn1"
    layers: tuple[str, str, str, str] = ("layer1", "layer2", "layer3", "layer4")
    norm: str = "bn{}"
    """Name of the norm of the convolution with this number in a block."""
    shortcut: tuple[str, str] = ("downsample.0", "downsample.1")
    """Names of the shortcut's convolution and norm."""
    heads: str = ""
    """Prefix of a head's name beside the backbone, below the backbone's own prefix."""
    stems: tuple[Stem, ...] = STEMS_BY_SHAPE

    def rename(self, name: str) -> str:
        """Translate torchvision's `name`, such as layer1.0.bn2.bias to res2.0.conv2.norm.bias."""
        first, *rest = name.split(".")
        if first == "conv1":
            return ".".join([self.conv1, *rest])
        if first == "bn1":
            return ".".join([self.bn1, *rest])
        block, module, *rest = rest
        if module == "downsample":
            module = self.shortcut[int(rest.pop(0))]
        elif module.startswith("bn"):
            module = self.norm.format(module.removeprefix("bn"))
        return ".".join([self.layers[int(first[-1]) - 1], block, module, *rest])


DETECTRON2 = Scheme(
    name="detectron2",
    conv1="stem.conv1",
    bn1="stem.conv1.norm",
    layers=("res2", "res3", "res4", "res5"),
    norm="conv{}.norm",
    shortcut=("shortcut", "shortcut.norm"),
    # MoCo's converter puts every name without "layer" below the stem, and so its head
    heads="stem.",
)
SCHEMES = (
    Scheme(name="torchvision"),
    Scheme(name="torchvision with shortcut", shortcut=("shortcut.0", "shortcut.1")),
    # nn.Sequential numbers a ResNet's children: conv1, bn1, relu, maxpool, layer1 to layer4
    Scheme(name="nn.Sequential", conv1="0", bn1="1", layers=("4", "5", "6", "7")),
    Scheme(
        name="nn.Sequential without maxpool",
        conv1="0",
        bn1="1",
        layers=("3", "4", "5", "6"),
        stems=("cifar",),
    ),
    DETECTRON2,
)

LAYOUTS: tuple[tuple[str, str, str], ...] = (
    # pattern of the prefix's end, pattern in the name of some other tensor, name of the project
    (r"_feature_blocks\.", "", "VISSL"),
    (r"encoder_q\.0\.", "", "OpenMMLab MoCo"),
    (r"encoder_q\.", "", "MoCo"),
    (r"base_encoder\.", "", "MoCo v3"),
    (r"module\.encoder\.", r"predictor\.", "SimSiam"),
    (r"(teacher|student)\.(\w+\.)*", "", "DINO"),
    (r"online\w*\.(\w+\.)*", "", "BYOL"),
    (r"(^|\.)net\.", r"online_encoder\.", "BYOL"),
    (r"module\.backbone\.", r"(^|\.)module\.bn\.running_mean$", "Barlow Twins"),
    (r"module\.backbone\.", r"(^|\.)module\.projector\.0\.bias$", "VICReg"),
    (r"module\.backbone\.", r"(^|\.)module\.projector\.", "Barlow Twins"),
    (r"encoder\.", r"(^|\.)projector\.linear1\.", "PixPro"),
    (r"backbone\.", r"(^|\.)backbone\.fc\.0\.", "SimCLR of sthalles"),
    (r"(backbone|encoder)\.", r"(^|\.)(classifier|projector|momentum_backbone)\.", "solo-learn"),
    (r"backbone\.", r"(projection|prediction)_head\.", "lightly"),
    (r"backbone\.", "", "OpenMMLab"),
    (r"module\.", r"prototypes\.", "SwAV"),
    (r"module\.", "", "DistributedDataParallel"),
    (r"(^|state_dict\.|model\.|network\.)", r"(^|\.)fc\.weight$", "torchvision or timm"),
    (r"(^|state_dict\.|model\.|network\.)", "", "bare torchvision"),
)


def layout_name(scheme: Scheme, prefix: str, others: Iterable[str]) -> str:
    """Return the project name for a backbone below `prefix` beside the tensors `others`."""
    if scheme.name == "detectron2":
        return "detectron2"
    if scheme.name.startswith("nn.Sequential"):
        return "lightly" if prefix.endswith("backbone.") else "nn.Sequential"
    names = list(others)
    for ending, beside, layout in LAYOUTS:
        if re.search(f"{ending}$", prefix) and any(
            re.search(beside, name) for name in ["", *names]
        ):
            return layout
    return "unknown"
