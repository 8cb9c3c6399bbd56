"""A query and many positive keys of each image: Cai et al., NeurIPS 2020, arXiv:2009.14776.

That the keys of all views pass together is in appendix C of the paper.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.parts.choices import KeyForward
from pretrain.parts.momentum_encoder import MomentumEncoder
from pretrain.parts.shuffle_bn import shuffled_forward, split_forward


def query_and_keys(
    encoder: nn.Module,
    key_encoder: MomentumEncoder,
    views: list[Tensor],
    *,
    key_forward: KeyForward,
    bn_splits: int,
) -> tuple[Tensor, Tensor]:
    """Return the query (n, d) of the first view and its keys (n, M, d), which get no gradient.

    views: 1 + M of (n, 3, H, W). Both results are float32 and of unit length.
    """
    keys = positive_keys(key_encoder, views[1:], key_forward=key_forward, bn_splits=bn_splits)
    query = split_forward(encoder, views[0], bn_splits)
    return normalize(query.float(), dim=1), keys


def positive_metrics(query: Tensor, keys: Tensor) -> dict[str, Tensor]:
    """Return mean and variance of the similarities of query (n, d) and keys (n, M, d)."""
    similarity = similarities(query.detach(), keys)
    return {
        "positive_similarity": similarity.mean(),
        "positive_variance": similarity.var(dim=1, correction=0).mean(),
    }


def positive_keys(
    key_encoder: nn.Module, views: list[Tensor], *, key_forward: KeyForward, bn_splits: int
) -> Tensor:
    """Return keys (n, M, d) of M views (n, 3, H, W), unit length, float32, without gradient."""
    batches = [torch.cat(views)] if key_forward == "concatenated" else views
    keys = [shuffled_forward(key_encoder, images, bn_splits) for images in batches]
    unit_keys = normalize(torch.cat(keys).float(), dim=1)
    return unit_keys.view(len(views), -1, unit_keys.shape[1]).transpose(0, 1)


def similarities(query: Tensor, keys: Tensor) -> Tensor:
    """Return products (n, M) of query (n, d) and its keys (n, M, d), float32 under autocast too."""
    return (query.float()[:, None] * keys.float()).sum(dim=2)
