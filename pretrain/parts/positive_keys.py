"""Many positive keys of one image: Cai et al., NeurIPS 2020, arXiv:2009.14776, section 3.3."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.parts.shuffle_bn import shuffled_forward

KeyForward = Literal["concatenated", "per_view"]
"""Which images share batch statistics: all M views of a batch, or those of one view."""


def positive_keys(
    key_encoder: nn.Module, views: list[Tensor], *, key_forward: KeyForward, bn_splits: int
) -> Tensor:
    """Keys (n, M, d) of M views of (n, 3, H, W), of unit length, float32, without gradient."""
    batches = [torch.cat(views)] if key_forward == "concatenated" else views
    keys = [shuffled_forward(key_encoder, images, bn_splits) for images in batches]
    unit_keys = normalize(torch.cat(keys).float(), dim=1)
    return unit_keys.view(len(views), -1, unit_keys.shape[1]).transpose(0, 1)


def similarities(query: Tensor, keys: Tensor) -> Tensor:
    """Query (n, d) times each of its keys (n, M, d): (n, M), float32, also under autocast."""
    return (query.float()[:, None] * keys.float()).sum(dim=2)
