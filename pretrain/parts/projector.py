"""Projectors and predictors, the networks between the backbone and the loss."""

from torch import nn

from pretrain.parts.choices import Projector


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


def mlp_with_final_norm(in_features: int, hidden_features: int, out_features: int) -> nn.Sequential:
    """Return three layers with batch norm, (n, in) -> (n, out), the last norm not affine.

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
        nn.BatchNorm1d(out_features, affine=False),
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
