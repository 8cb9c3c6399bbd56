"""Heads between the backbone and the loss."""

from torch import nn


def mlp(in_features: int, hidden_features: int, out_features: int) -> nn.Sequential:
    """Two layers without batch norm, (n, in) -> (n, out): the projector of MoCo v2."""
    return nn.Sequential(
        nn.Linear(in_features, hidden_features),
        nn.ReLU(inplace=True),
        nn.Linear(hidden_features, out_features),
    )
