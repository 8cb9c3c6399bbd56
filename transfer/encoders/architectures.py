"""Names of the supported ResNets and stems; sources.py builds other networks.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, arXiv:1512.03385. Files in our
format may have several copies of layer4: Xiao et al., ICLR 2021, arXiv:2008.05659 (LooC++).
"""

import re
from typing import Literal, get_args

from pretrain.running.errors import SuiteError

Stem = Literal["imagenet", "cifar", "imagenet-nopool", "cifar-maxpool", "cifar-pad2"]
"""imagenet: 7x7 convolution, stride 2, max-pool. cifar: 3x3, stride 1.

The other stems differ as their names say; cifar-pad2 pads the 3x3 convolution by 2 instead of 1.
"""

STEMS: tuple[Stem, ...] = get_args(Stem)


def is_large(stem: Stem) -> bool:
    """Return whether the stem is a 7x7 convolution of stride 2."""
    return stem.startswith("imagenet")


def has_max_pool(stem: Stem) -> bool:
    """Return whether a 3x3 max-pool of stride 2 follows the convolution."""
    return stem in ("imagenet", "cifar-maxpool")


FEATURE_DIM = {
    "resnet18": 512,
    "resnet34": 512,
    "resnet50": 2048,
    "resnet101": 2048,
    "resnet152": 2048,
    "wide_resnet50_2": 2048,
    "wide_resnet101_2": 2048,
    "resnext50_32x4d": 2048,
    "resnext101_32x8d": 2048,
    "resnet50w2": 4096,
    "resnet50w4": 8192,
}
"""Feature dimension C of each architecture, by torchvision's names.

resnet50w2 and resnet50w4 are from SwAV: every layer has two or four times the channels.
torchvision's wide ResNets widen only the 3x3 convolutions.
"""

PLAIN = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
"""The architectures of He et al., which every engine can build."""

WIDE = tuple(arch for arch in FEATURE_DIM if arch not in PLAIN)
"""The architectures with more channels or with grouped convolutions."""

WIDENING = {"resnet50w2": 2, "resnet50w4": 4}
"""Factor of all channels of each widened ResNet-50."""

MANY_HEADS = re.compile(r"(.+)-heads([1-9][0-9]?)")
"""Pattern of architectures with copies of layer4, such as resnet50-heads4."""


class BackboneError(SuiteError, ValueError):
    """Error in a checkpoint; the message says what to do."""


def network_and_heads(arch: str) -> tuple[str, int]:
    """Return torchvision's name and the number of heads (0: ordinary network).

    resnet50-heads4 gives resnet50 and 4. Raises BackboneError for an unknown name.
    """
    match = MANY_HEADS.fullmatch(arch)
    name, num_heads = (match[1], int(match[2])) if match else (arch, 0)
    if name not in FEATURE_DIM:
        raise BackboneError(
            f"unknown architecture {arch!r}; expected one of {', '.join(FEATURE_DIM)}, optionally "
            f"with 1 to 99 copies of layer4, such as resnet50-heads4"
        )
    return name, num_heads


def feature_dim(arch: str) -> int:
    """Return the feature dimension C, summed over all heads."""
    name, num_heads = network_and_heads(arch)
    return FEATURE_DIM[name] * max(1, num_heads)


def network_words(arch: str, stem: str) -> str:
    """Return a network's name for tables; only ResNets have a stem."""
    return f"{arch}, {stem} stem" if stem else arch
