"""Projectors, and several heads on one backbone.

Several heads: Xiao et al., ICLR 2021, arXiv:2008.05659, section 3. Views of several sizes: Caron et
al., NeurIPS 2020, arXiv:2006.09882, section 3.2.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from pretrain.parts.resnet import BranchedResNet
from pretrain.parts.view import Projector


class ProjectorHeads(nn.Module):
    """h two-layer projectors on one backbone.

    All projectors share the backbone's features, but each has a branch of a BranchedResNet.
    """

    def __init__(
        self, backbone: nn.Module, feature_dim: int, embedding_dim: int, num_heads: int
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.projectors = nn.ModuleList(
            mlp(feature_dim, feature_dim, embedding_dim) for _ in range(num_heads)
        )

    def forward(self, images: Tensor, first: int = 0) -> Tensor:
        """Return embeddings (n, h - first, d).

        images (n, 3, H, W). Heads before `first` are skipped.
        """
        heads = range(first, len(self.projectors))
        if isinstance(self.backbone, BranchedResNet):
            features = self.backbone.branches(self.backbone.trunk(images), heads)
        else:
            features = [self.backbone(images)] * len(heads)
        embeddings = [self.projectors[i](rows) for i, rows in zip(heads, features, strict=True)]
        return torch.stack(embeddings, dim=1)


def features_by_size(backbone: nn.Module, views: list[Tensor]) -> Tensor:
    """Return features (V n, C) of V views, first view first.

    views (n, 3, H, W). Adjacent views of equal size form one batch, and so share batch statistics.
    """
    groups: list[list[Tensor]] = []
    for view in views:  # torch.compile cannot trace itertools.groupby
        if groups and groups[-1][0].shape[-1] == view.shape[-1]:
            groups[-1].append(view)
        else:
            groups.append([view])
    return torch.cat([backbone(torch.cat(group)) for group in groups])


def moco_projector(kind: Projector, feature_dim: int, embedding_dim: int) -> nn.Module:
    """Return the projector of MoCo v1 or v2: (n, C) -> (n, d).

    MoCo v1 has one linear layer, and v2 has two layers with hidden width C.
    """
    if kind == "linear":
        return nn.Linear(feature_dim, embedding_dim)
    return mlp(feature_dim, feature_dim, embedding_dim)


def mlp(in_features: int, hidden_features: int, out_features: int) -> nn.Sequential:
    """Return MoCo v2's projector, (n, in) -> (n, out).

    It has two layers without batch norm.
    """
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
    """Return an MLP with batch norm, (n, in) -> (n, out).

    With one hidden layer it is BYOL's projector or predictor, arXiv:2006.07733. With a final bias
    it is SimSiam's predictor or SwAV's projector, arXiv:2006.09882. With a final affine norm it is
    the projector of SimCLR's released code, arXiv:2002.05709. With two hidden layers it is the
    projector of Barlow Twins, arXiv:2103.03230, or the expander of VICReg. If a norm without
    parameters follows, it is the projector of SimSiam, arXiv:2011.10566.
    """
    layers: list[nn.Module] = []
    for width in (in_features, *[hidden_features] * (num_hidden - 1)):
        # batch norm cancels a bias
        layers += nn.Linear(width, hidden_features, bias=False), nn.BatchNorm1d(hidden_features)
        layers.append(nn.ReLU(inplace=True))
    # no bias: losses that center features cancel it, and BYOL's released code has none
    layers.append(nn.Linear(hidden_features, out_features, bias=bias))
    if final_norm != "none":
        layers.append(nn.BatchNorm1d(out_features, affine=final_norm == "affine"))
    return nn.Sequential(*layers)
