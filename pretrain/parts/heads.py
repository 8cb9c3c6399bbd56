"""Projectors, and several embedding spaces on one backbone, each with its own projector and queue.

Xiao et al., ICLR 2021, arXiv:2008.05659, section 3. Views of several sizes: Caron et al., NeurIPS
2020, arXiv:2006.09882, section 3.2.
"""

from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from pretrain.parts.queue import KeyQueue
from pretrain.parts.resnet import BranchedResNet
from pretrain.parts.view import Projector


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


def features_by_size(backbone: nn.Module, views: list[Tensor]) -> Tensor:
    """Return features (V n, C) of V views (n, 3, H, W), first view first.

    Neighboring views of one size pass together, and so share their batch statistics.
    """
    groups = [torch.cat(list(group)) for _, group in groupby(views, lambda view: view.shape[-1])]
    return torch.cat([backbone(images) for images in groups])


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


def normed(in_features: int, out_features: int) -> list[nn.Module]:
    """Return a layer with batch norm, (n, in) -> (n, out); the norm takes any bias away."""
    return [
        nn.Linear(in_features, out_features, bias=False),
        nn.BatchNorm1d(out_features),
        nn.ReLU(inplace=True),
    ]


def mlp_with_final_norm(
    in_features: int, hidden_features: int, out_features: int, *, affine: bool = False
) -> nn.Sequential:
    """Return three layers with batch norm, (n, in) -> (n, out), the last one affine or not.

    It is the projector of SimSiam: Chen & He, CVPR 2021, arXiv:2011.10566.
    """
    return nn.Sequential(
        *normed(in_features, hidden_features),
        *normed(hidden_features, hidden_features),
        nn.Linear(hidden_features, out_features, bias=False),
        nn.BatchNorm1d(out_features, affine=affine),
    )


def mlp_with_norm(in_features: int, hidden_features: int, out_features: int) -> nn.Sequential:
    """Return a hidden layer with batch norm and a layer with a bias, (n, in) -> (n, out).

    It is SimSiam's predictor, arXiv:2011.10566, and SwAV's projector, arXiv:2006.09882.
    """
    return nn.Sequential(
        *normed(in_features, hidden_features), nn.Linear(hidden_features, out_features)
    )


def mlp_with_plain_output(
    in_features: int, hidden_features: int, out_features: int, *, num_hidden: int
) -> nn.Sequential:
    """Return hidden layers with batch norm and a plain output layer, (n, in) -> (n, out).

    Two hidden layers make the projector of Barlow Twins (Zbontar et al., ICML 2021,
    arXiv:2103.03230) and the expander of VICReg; one makes BYOL's networks, arXiv:2006.07733.
    """
    layers = normed(in_features, hidden_features)
    for _ in range(num_hidden - 1):
        layers += normed(hidden_features, hidden_features)
    # no bias: losses that center features cancel it, and BYOL's released code has none either
    return nn.Sequential(*layers, nn.Linear(hidden_features, out_features, bias=False))
