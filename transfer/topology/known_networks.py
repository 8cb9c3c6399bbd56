"""The networks that share names and shapes of tensors with torchvision's ResNets, and their inputs.

Strides, paddings, pooling, dilation and the norms' epsilon have no tensors, so a file with the same
names and shapes may come from any of the networks below. Sources: He et al., CVPR 2016 (stride in
the first 1x1 convolution, as Caffe's weights have it); Zhang, ICML 2019, arXiv:1904.11486
(anti-aliased down-sampling); Chen et al., arXiv:1706.05587 (dilation instead of stride).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models import ResNet
from torchvision.models.resnet import BasicBlock, Bottleneck

from transfer.backbone import IMAGENET_MEAN, IMAGENET_STD, Channels
from transfer.convert.architectures import Stem, is_large

Change = Callable[[ResNet], None]


@dataclass(frozen=True)
class Network:
    """One way to compute with the tensors of a ResNet."""

    name: str
    change: Change
    """Function that turns torchvision's network, with the stem "imagenet" or "cifar", into it."""
    large: bool | None = None
    """True if only networks with a 7x7 stem have this variant, False if only those with a 3x3."""
    stem: Stem | None = None
    """Stem with which `transfer` builds it; None if no stem makes the difference."""
    bottleneck: bool = False
    """True if only networks with bottlenecks have this variant."""

    def fits(self, arch: str, stem: Stem) -> bool:
        """Return whether a network of this architecture and stem may be this variant."""
        basic = arch.startswith(("resnet18", "resnet34"))
        return self.large in (None, is_large(stem)) and not (self.bottleneck and basic)


@dataclass(frozen=True, kw_only=True)
class Input:
    """One way to hand an image to a network: channels in RGB or BGR, (x * scale - mean) / std."""

    name: str
    scale: float = 1.0
    """Factor of the pixels, which lie between 0 and 1."""
    mean: Channels = IMAGENET_MEAN
    """Mean in RGB order, in the units of the scaled pixels."""
    std: Channels = IMAGENET_STD
    reverse: bool = False
    """True if the channels are handed over as BGR."""

    @property
    def normalization(self) -> tuple[float, ...]:
        """Mean and std of pixels from 0 to 1, to nine decimals."""
        return tuple(round(level / self.scale, 9) for level in (*self.mean, *self.std))

    def __call__(self, images: Tensor) -> Tensor:
        """Return the network's input for RGB images (n, 3, H, W) between 0 and 1."""
        mean, std = (
            torch.tensor(values, dtype=torch.float32).reshape(3, 1, 1)
            for values in (self.mean, self.std)
        )
        normalized = (images * self.scale - mean) / std
        return normalized.flip(1) if self.reverse else normalized


CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
ZEROS, HALVES, ONES = (0.0, 0.0, 0.0), (0.5, 0.5, 0.5), (1.0, 1.0, 1.0)
IMAGENET_MEAN_255 = (123.675, 116.28, 103.53)

_RGB = (
    Input(name="RGB, mean and std of ImageNet"),
    Input(name="RGB, mean and std of CIFAR", mean=CIFAR_MEAN, std=CIFAR_STD),
    Input(name="RGB from 0 to 1, mean and std 0.5", mean=HALVES, std=HALVES),
    Input(name="RGB from 0 to 1, not normalized", mean=ZEROS, std=ONES),
    Input(name="RGB from 0 to 255, not normalized", scale=255, mean=ZEROS, std=ONES),
    Input(name="RGB from 0 to 255, mean of ImageNet", scale=255, mean=IMAGENET_MEAN_255, std=ONES),
)

INPUTS: tuple[Input, ...] = (
    *_RGB,
    *(replace(way, name=f"BGR{way.name.removeprefix('RGB')}", reverse=True) for way in _RGB),
)


def _set(module: str, name: str, value: object) -> Change:
    """Set an attribute of a part of the network."""
    return lambda network: setattr(network.get_submodule(module), name, value)


def _dilated(*stages: int) -> Change:
    """Replace the stride of these stages by dilation, as in torchvision's segmentation bodies."""

    def change(network: ResNet) -> None:
        for power, stage in enumerate(stages):
            for block in network.get_submodule(f"layer{stage}").modules():
                if not isinstance(block, BasicBlock | Bottleneck):
                    continue
                # the first block, with the shortcut, keeps the dilation of the stage before
                dilation = 2**power if block.downsample is not None else 2 ** (power + 1)
                for module in block.modules():
                    if isinstance(module, nn.Conv2d):
                        module.stride = (1, 1)
                        if module.kernel_size == (3, 3):
                            module.dilation = module.padding = (dilation, dilation)

    return change


class BlurPool(nn.Module):
    """Binomial filter 1-2-1 in both directions, then stride 2: (n, C, H, W) -> (n, C, H/2, W/2)."""

    def forward(self, maps: Tensor) -> Tensor:
        """Return the maps (n, C, H, W), filtered with stride 2 and reflection at the border."""
        line = torch.tensor([0.25, 0.5, 0.25], dtype=maps.dtype)
        channels = maps.shape[1]
        kernel = torch.outer(line, line).expand(channels, 1, 3, 3)
        # one pixel cannot be reflected
        mode = "reflect" if min(maps.shape[-2:]) > 1 else "replicate"
        return F.conv2d(F.pad(maps, (1, 1, 1, 1), mode=mode), kernel, stride=2, groups=channels)


def _anti_aliased(network: ResNet) -> None:
    """Filter behind the ReLU of 3x3 convolutions in place of their stride 2, and after max-pool."""
    if isinstance(network.maxpool, nn.MaxPool2d):
        network.maxpool = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), BlurPool())
    for block in network.modules():
        if isinstance(block, BasicBlock) and block.conv1.stride == (2, 2):
            block.conv1.stride = (1, 1)
            # the ReLU that the block applies afterwards changes nothing
            block.bn1 = nn.Sequential(block.bn1, nn.ReLU(), BlurPool())
        elif isinstance(block, Bottleneck) and block.conv2.stride == (2, 2):
            block.conv2.stride = (1, 1)
            block.bn2 = nn.Sequential(block.bn2, nn.ReLU(), BlurPool())


def _stride_in_1x1(network: ResNet) -> None:
    for block in network.modules():
        if isinstance(block, Bottleneck) and block.conv2.stride == (2, 2):
            block.conv1.stride, block.conv2.stride = (2, 2), (1, 1)


def _eps_1e3(network: ResNet) -> None:
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 1e-3


POOL = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
CEIL_POOL = nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True)

NETWORKS: tuple[Network, ...] = (
    Network("as torchvision", lambda network: None, True, "imagenet"),
    Network("no max-pool", _set("", "maxpool", nn.Identity()), True, "imagenet-nopool"),
    Network("max-pool without padding", _set("", "maxpool", CEIL_POOL), True),
    Network("3x3 stem, padding 1, no max-pool", lambda network: None, False, "cifar"),
    Network("padding 2 in the stem", _set("conv1", "padding", (2, 2)), False, "cifar-pad2"),
    Network("max-pool after the stem", _set("", "maxpool", POOL), False, "cifar-maxpool"),
    Network("dilated, output stride halved", _dilated(4)),
    Network("dilated, output stride quartered", _dilated(3, 4)),
    Network("anti-aliased by blur-pool", _anti_aliased),
    Network("stride in the 1x1 convolutions", _stride_in_1x1, bottleneck=True),
    Network("batch-norm eps 1e-3", _eps_1e3),
)
"""Known networks; the first that has a stem's name is torchvision's or this suite's own."""
