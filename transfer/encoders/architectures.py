"""The supported ResNets and stems: names and shapes; sources.py builds other networks.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, arXiv:1512.03385. Files in our
format may have several copies of layer4: Xiao et al., ICLR 2021, arXiv:2008.05659 (LooC++).
"""

import re
from functools import cache
from typing import Literal, NamedTuple, get_args

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


class Sizes(NamedTuple):
    """Numbers of blocks and channels of a ResNet."""

    blocks: tuple[int, int, int, int]
    """Residual blocks of each stage."""
    is_bottleneck: bool = True
    """True for blocks of three convolutions, False for two."""
    widening: int = 1
    """Factor of all channels."""
    width: int = 1
    """Factor of the channels of the 3x3 convolutions of bottlenecks."""
    groups: int = 1
    """Groups of the 3x3 convolutions."""


SIZES = {
    "resnet18": Sizes((2, 2, 2, 2), is_bottleneck=False),
    "resnet34": Sizes((3, 4, 6, 3), is_bottleneck=False),
    "resnet50": Sizes((3, 4, 6, 3)),
    "resnet101": Sizes((3, 4, 23, 3)),
    "resnet152": Sizes((3, 8, 36, 3)),
    "wide_resnet50_2": Sizes((3, 4, 6, 3), width=2),
    "wide_resnet101_2": Sizes((3, 4, 23, 3), width=2),
    "resnext50_32x4d": Sizes((3, 4, 6, 3), width=2, groups=32),
    "resnext101_32x8d": Sizes((3, 4, 23, 3), width=4, groups=32),
    "resnet50w2": Sizes((3, 4, 6, 3), widening=2),
    "resnet50w4": Sizes((3, 4, 6, 3), widening=4),
}
"""Sizes of each architecture, by torchvision's names; resnet50w2 and resnet50w4 are from SwAV."""

FEATURE_DIM = {
    arch: 512 * sizes.widening * (4 if sizes.is_bottleneck else 1) for arch, sizes in SIZES.items()
}
"""Feature dimension C of each architecture."""

PLAIN = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
"""The architectures of He et al., which every engine can build."""

WIDE = tuple(arch for arch in SIZES if arch not in PLAIN)
"""The architectures with more channels or with grouped convolutions."""

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


@cache
def tensor_shapes(arch: str, stem: Stem) -> dict[str, tuple[int, ...]]:
    """Return name and shape of the network's tensors, in torchvision's order.

    Importing torchvision would take seconds.
    """
    name, num_heads = network_and_heads(arch)
    sizes = SIZES[name]
    shapes: dict[str, tuple[int, ...]] = {}

    def add(convolution: str, norm: str, *shape: int) -> None:
        shapes[f"{convolution}.weight"] = shape
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{norm}.{part}"] = shape[:1]
        shapes[f"{norm}.num_batches_tracked"] = ()

    channels = 64 * sizes.widening
    kernel_px = 7 if is_large(stem) else 3
    add("conv1", "bn1", channels, 3, kernel_px, kernel_px)
    copies = [f"layer4.{head}" for head in range(num_heads)] or ["layer4"]
    for index, layer in enumerate(["layer1", "layer2", "layer3", *copies]):
        stage = min(index, 3)
        planes = 64 * sizes.widening * 2**stage
        outputs = 4 * planes if sizes.is_bottleneck else planes
        inputs = channels
        for number in range(sizes.blocks[stage]):
            block = f"{layer}.{number}"
            if sizes.is_bottleneck:
                width = planes * sizes.width
                add(f"{block}.conv1", f"{block}.bn1", width, inputs, 1, 1)
                add(f"{block}.conv2", f"{block}.bn2", width, width // sizes.groups, 3, 3)
                add(f"{block}.conv3", f"{block}.bn3", outputs, width, 1, 1)
            else:
                add(f"{block}.conv1", f"{block}.bn1", planes, inputs, 3, 3)
                add(f"{block}.conv2", f"{block}.bn2", planes, planes, 3, 3)
            if inputs != outputs:
                add(f"{block}.downsample.0", f"{block}.downsample.1", outputs, inputs, 1, 1)
            inputs = outputs
        if stage < 3:  # copies of layer4 have the same input
            channels = outputs
    return shapes
