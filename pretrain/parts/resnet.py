"""ResNets in torchvision's layout, several last stages on one trunk, activations computed again.

He et al., CVPR 2016, arXiv:1512.03385; Xiao et al., ICLR 2021, arXiv:2008.05659, section 3; Chen et
al., 2016, arXiv:1604.06174.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torchvision.models import get_model
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

from pretrain.parts.view import Stem

ARCHITECTURES = "resnet18", "resnet34", "resnet50", "resnet101", "resnet152"


def build_resnet(arch: str, stem: Stem) -> tuple[ResNet, int]:
    """Return a network (n, 3, H, W) -> (n, C) with torchvision's initialization, and C.

    It has no classifier. The cifar stem is a 3x3 convolution of stride 1 without pooling: Chen et
    al., ICML 2020, arXiv:2002.05709, appendix B.9.
    """
    if arch not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {arch!r}; choose one of {', '.join(ARCHITECTURES)}")
    network: ResNet = get_model(arch)
    feature_dim = network.fc.in_features
    network.fc = nn.Identity()
    if stem == "cifar":
        network.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
        nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
        network.maxpool = nn.Identity()
    return network, feature_dim


class BranchedResNet(nn.Module):
    """A ResNet with h stages layer4 side by side: the Conv5 heads of LooC++.

    Tensors have torchvision's names with the head after layer4: layer4.{head}.{block}.conv1...
    Head 0 is the layer4 of the given network.
    """

    def __init__(self, network: nn.Module, num_heads: int) -> None:
        super().__init__()
        if not isinstance(network, ResNet):
            raise ValueError(
                f"found a backbone of type {type(network).__name__}, expected torchvision's "
                f"ResNet: heads that branch before the last stage need its layer4"
            )
        self.conv1 = network.conv1
        self.bn1 = network.bn1
        self.relu = network.relu
        self.maxpool = network.maxpool
        self.layer1 = network.layer1
        self.layer2 = network.layer2
        self.layer3 = network.layer3
        # weights of their own: equal heads that see equal images would stay equal
        others = [_reinitialized_copy(network.layer4) for _ in range(num_heads - 1)]
        self.layer4 = nn.ModuleList([network.layer4, *others])
        self.avgpool = network.avgpool

    def forward(self, images: Tensor) -> Tensor:
        """Return features (n, h * C) of images (n, 3, H, W), one head after the other."""
        return torch.cat(self.branches(self.trunk(images), range(len(self.layer4))), dim=1)

    def trunk(self, images: Tensor) -> Tensor:
        """Return the maps (n, C', H', W') that all heads share: conv1 to layer3 of (n, 3, H, W)."""
        stem = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        maps: Tensor = self.layer3(self.layer2(self.layer1(stem)))
        return maps

    def branches(self, maps: Tensor, heads: Iterable[int]) -> list[Tensor]:
        """Return features (n, C) of each of these heads from the trunk's maps (n, C', H', W')."""
        return [self.avgpool(self.layer4[head](maps)).flatten(1) for head in heads]

    def head(self, index: int) -> ResNet:
        """Return an ordinary ResNet, (n, 3, H, W) -> (n, C), that shares trunk and one head."""
        with torch.device("meta"):
            network = ResNet(BasicBlock, [1, 1, 1, 1])  # a frame: each part is replaced
        for name, module in self.named_children():
            setattr(network, name, self.layer4[index] if name == "layer4" else module)
        network.fc = nn.Identity()
        return network.train(self.training)


def _reinitialized_copy(stage: nn.Module) -> nn.Module:
    """Return a copy with torchvision's initial weights, drawn from the current seed."""
    stage = copy.deepcopy(stage)
    for module in stage.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
    return stage


def checkpoint_activations(network: nn.Module) -> None:
    """Let each residual block keep its input alone, and compute its maps again for its gradient.

    Losses, gradients and running statistics stay the same, since a block sees the same batch twice.
    """
    for block in network.modules():
        if isinstance(block, BasicBlock | Bottleneck):
            block.forward = partial(_forward, block, block.forward)


def _forward(block: nn.Module, plain: Callable[[Tensor], Tensor], maps: Tensor) -> Tensor:
    """Return what a block gives for maps (n, C, H, W)."""
    if not torch.is_grad_enabled():
        return plain(maps)
    result: Tensor = checkpoint(
        plain,
        maps,
        use_reentrant=False,
        preserve_rng_state=False,  # nothing in a block is drawn
        context_fn=lambda: (nullcontext(), _unchanged_statistics(block)),
    )
    return result


@contextmanager
def _unchanged_statistics(block: nn.Module) -> Iterator[None]:
    """Give the norms copies of their running statistics, which the first pass has updated."""
    own = [
        (module, name, kept)
        for module in block.modules()
        for name, kept in module.named_buffers(recurse=False)
    ]
    for module, name, kept in own:
        setattr(module, name, kept.clone())
    try:
        yield
    finally:
        for module, name, kept in own:
            setattr(module, name, kept)
