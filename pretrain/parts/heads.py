"""Projectors, and several embedding spaces on one backbone, each with its own projector and queue.

Xiao et al., ICLR 2021, arXiv:2008.05659, section 3.
"""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import ResNet
from torchvision.models.resnet import BasicBlock

from pretrain.parts.choices import Projector
from pretrain.parts.queue import KeyQueue


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


class ProjectorHeads(nn.Module):
    """h two-layer projectors on one backbone's features, or each on a head of a BranchedResNet."""

    def __init__(
        self, backbone: nn.Module, feature_dim: int, embedding_dim: int, num_heads: int
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.projectors = nn.ModuleList(
            mlp(feature_dim, feature_dim, embedding_dim) for _ in range(num_heads)
        )

    def forward(self, images: Tensor, first: int = 0) -> Tensor:
        """Return embeddings (n, h - first, d) of images (n, 3, H, W) by heads from `first` on."""
        heads = range(first, len(self.projectors))
        if isinstance(self.backbone, BranchedResNet):
            features = self.backbone.branches(self.backbone.trunk(images), heads)
        else:
            features = [self.backbone(images)] * len(heads)
        embeddings = [self.projectors[i](rows) for i, rows in zip(heads, features, strict=True)]
        return torch.stack(embeddings, dim=1)


class LaterHeads(nn.Module):
    """An encoder without its first head, which only the first key view needs."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, images: Tensor) -> Tensor:
        """Return embeddings (n, h - 1, d) of images (n, 3, H, W)."""
        embeddings: Tensor = self.encoder(images, first=1)
        return embeddings


class HeadQueues(nn.Module):
    """A queue of past keys for each head."""

    def __init__(self, num_heads: int, size: int, embedding_dim: int) -> None:
        super().__init__()
        self.queues = nn.ModuleList(KeyQueue(size, embedding_dim) for _ in range(num_heads))

    def keys(self) -> Tensor:
        """Return the keys (h, K, d), a copy that later pushes do not change."""
        return torch.stack([queue.get_buffer("keys") for queue in self.queues])

    def push(self, keys: Tensor) -> None:
        """Push the keys (h, n, d), those of head i into queue i."""
        queues: list[Any] = list(self.queues)
        for queue, own_keys in zip(queues, keys, strict=True):
            queue.push(own_keys)


def moco_projector(kind: Projector, feature_dim: int, embedding_dim: int) -> nn.Module:
    """Return MoCo v1's single layer or MoCo v2's two with hidden width C: (n, C) -> (n, d)."""
    match kind:
        case "mlp":
            return mlp(feature_dim, feature_dim, embedding_dim)
        case "linear":
            return nn.Linear(feature_dim, embedding_dim)


def mlp(in_features: int, hidden_features: int, out_features: int) -> nn.Sequential:
    """Return two layers without batch norm, (n, in) -> (n, out): the projector of MoCo v2."""
    return nn.Sequential(
        nn.Linear(in_features, hidden_features),
        nn.ReLU(inplace=True),
        nn.Linear(hidden_features, out_features),
    )


def mlp_with_final_norm(
    in_features: int, hidden_features: int, out_features: int, *, affine: bool = False
) -> nn.Sequential:
    """Return three layers with batch norm, (n, in) -> (n, out), the last one affine or not.

    It is the projector of SimSiam: Chen & He, CVPR 2021, arXiv:2011.10566.
    """
    return nn.Sequential(
        nn.Linear(in_features, hidden_features, bias=False),
        nn.BatchNorm1d(hidden_features),
        nn.ReLU(inplace=True),
        nn.Linear(hidden_features, hidden_features, bias=False),
        nn.BatchNorm1d(hidden_features),
        nn.ReLU(inplace=True),
        nn.Linear(hidden_features, out_features, bias=False),
        nn.BatchNorm1d(out_features, affine=affine),
    )


def predictor(embedding_dim: int, hidden_features: int) -> nn.Sequential:
    """Return SimSiam's predictor, a bottleneck (n, d) -> (n, d): arXiv:2011.10566."""
    return nn.Sequential(
        nn.Linear(embedding_dim, hidden_features, bias=False),
        nn.BatchNorm1d(hidden_features),
        nn.ReLU(inplace=True),
        nn.Linear(hidden_features, embedding_dim),
    )


def mlp_with_plain_output(
    in_features: int, hidden_features: int, out_features: int, *, num_hidden: int
) -> nn.Sequential:
    """Return hidden layers with batch norm and a plain output layer, (n, in) -> (n, out).

    Two hidden layers make the projector of Barlow Twins (Zbontar et al., ICML 2021,
    arXiv:2103.03230) and the expander of VICReg; one makes BYOL's networks, arXiv:2006.07733.
    """
    # no biases: batch norm cancels hidden ones, losses that center features cancel the last one,
    # and BYOL's released code has none either
    layers: list[nn.Module] = []
    for width in (in_features, *(num_hidden - 1) * (hidden_features,)):
        layers += [
            nn.Linear(width, hidden_features, bias=False),
            nn.BatchNorm1d(hidden_features),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers, nn.Linear(hidden_features, out_features, bias=False))
