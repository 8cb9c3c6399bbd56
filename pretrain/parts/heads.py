"""Projectors, and several embedding spaces on one backbone, each with its own projector and queue.

Xiao et al., ICLR 2021, arXiv:2008.05659, section 3. Views of several sizes: Caron et al., NeurIPS
2020, arXiv:2006.09882, section 3.2.
"""

from typing import Any, Literal

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
    groups: list[list[Tensor]] = []
    for view in views:  # torch.compile cannot trace itertools.groupby
        if groups and groups[-1][0].shape[-1] == view.shape[-1]:
            groups[-1].append(view)
        else:
            groups.append([view])
    return torch.cat([backbone(torch.cat(group)) for group in groups])


def moco_projector(kind: Projector, feature_dim: int, embedding_dim: int) -> nn.Module:
    """Return MoCo v1's single layer or MoCo v2's two with hidden width C: (n, C) -> (n, d)."""
    if kind == "linear":
        return nn.Linear(feature_dim, embedding_dim)
    return mlp(feature_dim, feature_dim, embedding_dim)


def mlp(in_features: int, hidden_features: int, out_features: int) -> nn.Sequential:
    """Return two layers without batch norm, (n, in) -> (n, out): the projector of MoCo v2."""
    return nn.Sequential(
        nn.Linear(in_features, hidden_features),
        nn.ReLU(inplace=True),
        nn.Linear(hidden_features, out_features),
    )


def mlp_with_norm(
    in_features: int,
    hidden_features: int,
    out_features: int,
    *,
    num_hidden: int = 1,
    bias: bool = False,
    final_norm: Literal["none", "fixed", "affine"] = "none",
) -> nn.Sequential:
    """Return hidden layers with batch norm and an output layer, (n, in) -> (n, out).

    One hidden layer makes BYOL's networks, arXiv:2006.07733, with a bias at the end SimSiam's
    predictor and SwAV's projector, arXiv:2006.09882, and with an affine norm at the end the
    projector of SimCLR's released code, arXiv:2002.05709. Two make the projector of Barlow Twins,
    arXiv:2103.03230, the expander of VICReg and, with a norm without parameters at the end, the
    projector of SimSiam, arXiv:2011.10566.
    """
    layers: list[nn.Module] = []
    for width in (in_features, *[hidden_features] * (num_hidden - 1)):
        # the norm takes any bias away
        layers += nn.Linear(width, hidden_features, bias=False), nn.BatchNorm1d(hidden_features)
        layers.append(nn.ReLU(inplace=True))
    # no bias: losses that center features cancel it, and BYOL's released code has none either
    layers.append(nn.Linear(hidden_features, out_features, bias=bias))
    if final_norm != "none":
        layers.append(nn.BatchNorm1d(out_features, affine=final_norm == "affine"))
    return nn.Sequential(*layers)
