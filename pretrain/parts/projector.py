"""Heads between the backbone and the loss."""

from typing import Literal

from torch import nn

Projector = Literal["mlp", "linear"]
"""Of MoCo v2 or of MoCo v1."""


def moco_projector(kind: Projector, feature_dim: int, embedding_dim: int) -> nn.Module:
    """(n, C) -> (n, d), hidden width C: MoCo v1's single layer or MoCo v2's two."""
    match kind:
        case "mlp":
            return mlp(feature_dim, feature_dim, embedding_dim)
        case "linear":
            return nn.Linear(feature_dim, embedding_dim)


def mlp(in_features: int, hidden_features: int, out_features: int) -> nn.Sequential:
    """Two layers without batch norm, (n, in) -> (n, out): the projector of MoCo v2."""
    return nn.Sequential(
        nn.Linear(in_features, hidden_features),
        nn.ReLU(inplace=True),
        nn.Linear(hidden_features, out_features),
    )


def normalized_mlp(in_features: int, hidden_features: int, out_features: int) -> nn.Sequential:
    """Three layers with batch norm, (n, in) -> (n, out), the last norm without scale and shift.

    The projector of SimSiam: Chen & He, CVPR 2021, arXiv:2011.10566.
    """
    return nn.Sequential(
        nn.Linear(in_features, hidden_features, bias=False),
        nn.BatchNorm1d(hidden_features),
        nn.ReLU(inplace=True),
        nn.Linear(hidden_features, hidden_features, bias=False),
        nn.BatchNorm1d(hidden_features),
        nn.ReLU(inplace=True),
        nn.Linear(hidden_features, out_features, bias=False),
        nn.BatchNorm1d(out_features, affine=False),
    )


def predictor(embedding_dim: int, hidden_features: int) -> nn.Sequential:
    """A bottleneck on one branch, (n, d) -> (n, d): SimSiam, arXiv:2011.10566."""
    return nn.Sequential(
        nn.Linear(embedding_dim, hidden_features, bias=False),
        nn.BatchNorm1d(hidden_features),
        nn.ReLU(inplace=True),
        nn.Linear(hidden_features, embedding_dim),
    )


def plain_ended_mlp(
    in_features: int, hidden_features: int, out_features: int, *, num_hidden: int
) -> nn.Sequential:
    """Hidden layers with batch norm, the last one plain, (n, in) -> (n, out), none with a bias.

    Two hidden layers: the projector of Barlow Twins, Zbontar et al., ICML 2021, arXiv:2103.03230,
    and the expander of VICReg. For losses that center each feature, which would undo a last bias;
    with one hidden layer those of BYOL, arXiv:2006.07733, whose code has no last bias either.
    """
    layers: list[nn.Module] = []
    for width in (in_features, *(num_hidden - 1) * (hidden_features,)):
        layers += [
            nn.Linear(width, hidden_features, bias=False),
            nn.BatchNorm1d(hidden_features),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers, nn.Linear(hidden_features, out_features, bias=False))
