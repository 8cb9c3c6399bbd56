"""ResNets in torchvision's layout, with several last stages or activation checkpointing.

ResNet: He et al., CVPR 2016, arXiv:1512.03385. Several heads: Xiao et al., ICLR 2021,
arXiv:2008.05659, section 3. Activation checkpointing: Chen et al., 2016, arXiv:1604.06174.
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


def build_resnet(arch: str, stem: Stem) -> tuple[ResNet, int]:
    """Return a ResNet without classifier, and C.

    It maps (n, 3, H, W) to (n, C). It has torchvision's initialization. The "cifar" stem is a 3x3
    convolution of stride 1 without pooling: Chen et al., ICML 2020, arXiv:2002.05709, appendix B.9.
    """
    network: ResNet = get_model(arch)
    feature_dim = network.fc.in_features
    network.fc = nn.Identity()
    if stem == "cifar":
        network.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
        nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
        network.maxpool = nn.Identity()
    return network, feature_dim


class BranchedResNet(nn.Module):
    """A ResNet with h parallel layer4: LooC++'s Conv5 heads.

    Tensors have torchvision's names with the head after layer4: layer4.{head}.{block}.conv1... Head
    0 is the layer4 of the given network.
    """

    def __init__(self, network: ResNet, num_heads: int) -> None:
        super().__init__()
        self.conv1 = network.conv1
        self.bn1 = network.bn1
        self.relu = network.relu
        self.maxpool = network.maxpool
        self.layer1 = network.layer1
        self.layer2 = network.layer2
        self.layer3 = network.layer3
        # each head is initialized separately: equal heads with equal inputs would stay equal
        more_heads = [_reinitialized_copy(network.layer4) for _ in range(num_heads - 1)]
        self.layer4 = nn.ModuleList([network.layer4, *more_heads])
        self.avgpool = network.avgpool

    def forward(self, images: Tensor) -> Tensor:
        """Return features (n, h * C), concatenated over heads.

        images (n, 3, H, W).
        """
        return torch.cat(self.branches(self.trunk(images), range(len(self.layer4))), dim=1)

    def trunk(self, images: Tensor) -> Tensor:
        """Return the maps (n, C', H', W') after layer3.

        All heads share them.
        """
        stem = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        maps: Tensor = self.layer3(self.layer2(self.layer1(stem)))
        return maps

    def branches(self, maps: Tensor, heads: Iterable[int]) -> list[Tensor]:
        """Return features (n, C) of each of these heads.

        maps (n, C', H', W').
        """
        return [self.avgpool(self.layer4[head](maps)).flatten(1) for head in heads]

    def head(self, index: int) -> ResNet:
        """Return a ResNet that shares the trunk and one head.

        It maps (n, 3, H, W) to (n, C).
        """
        with torch.device("meta"):
            network = ResNet(BasicBlock, [1, 1, 1, 1])  # a shell: every submodule is replaced below
        for name, module in self.named_children():
            setattr(network, name, self.layer4[index] if name == "layer4" else module)
        network.fc = nn.Identity()
        return network.train(self.training)


def _reinitialized_copy(stage: nn.Module) -> nn.Module:
    """Return a copy with torchvision's initialization, drawn from the current seed."""
    stage = copy.deepcopy(stage)
    for module in stage.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
    return stage


def checkpoint_activations(network: nn.Module) -> None:
    """Recompute the activations of each residual block in the backward pass.

    Each block stores only its input. Losses, gradients and running statistics do not change, since
    the block sees the same batch twice.
    """
    for block in network.modules():
        if isinstance(block, BasicBlock | Bottleneck):
            block.forward = partial(_forward, block, block.forward)


def _forward(block: nn.Module, forward: Callable[[Tensor], Tensor], maps: Tensor) -> Tensor:
    """Return a block's output; recompute its maps for the gradient.

    maps (n, C, H, W).
    """
    if not torch.is_grad_enabled():
        return forward(maps)
    result: Tensor = checkpoint(
        forward,
        maps,
        use_reentrant=False,
        preserve_rng_state=False,  # a block draws no random numbers
        context_fn=lambda: (nullcontext(), _unchanged_statistics(block)),
    )
    return result


@contextmanager
def _unchanged_statistics(block: nn.Module) -> Iterator[None]:
    """Replace running statistics by copies: the first pass has updated them already."""
    buffers = [
        (module, name, buffer)
        for module in block.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    for module, name, buffer in buffers:
        setattr(module, name, buffer.clone())
    try:
        yield
    finally:
        for module, name, buffer in buffers:
            setattr(module, name, buffer)
