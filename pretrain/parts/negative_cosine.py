"""Predictions that are to point where their targets do: Chen & He, CVPR 2021, arXiv:2011.10566."""

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pretrain.parts.precision import at_least_float32


def negative_cosine(prediction: Tensor, target: Tensor) -> Tensor:
    """Eq. 1, mean over the batch: from -1, the same direction, to 1.

    prediction (n, d), target (n, d), of any length; float32, also under autocast. The target gets
    no gradient.
    """
    with torch.autocast(prediction.device.type, enabled=False):
        found = normalize(at_least_float32(prediction), dim=1)
        wanted = normalize(at_least_float32(target.detach()), dim=1)
        return -(found * wanted).sum(dim=1).mean()


def embedding_spread(embeddings: Tensor) -> Tensor:
    """Mean deviation of the coordinates of unit rows (n, d), times the root of d; no gradient.

    About 1 where directions are spread evenly and 0 where all embeddings have collapsed: figure 2.
    """
    unit = normalize(embeddings.detach().float(), dim=1)
    spread: Tensor = unit.std(dim=0).mean() * math.sqrt(unit.shape[1])
    return spread
