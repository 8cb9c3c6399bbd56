"""A moving average of an encoder, as in MoCo.

He et al., CVPR 2020, arXiv:1911.05722, eq. 2. Queries with several positive keys: Cai et al.,
NeurIPS 2020, arXiv:2009.14776. Their appendix C says that the keys of all views form one batch.
"""

import copy
import math
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.parts.sync_bn import shuffled_forward, split_forward
from pretrain.parts.view import KeyForward

Number = TypeVar("Number", float, Tensor)


class MomentumEncoder(nn.Module):
    """An encoder whose parameters are a moving average of another encoder's.

    Buffers are not averaged: batch norm tracks the statistics of the images that this encoder sees.
    """

    def __init__(self, encoder: nn.Module, momentum: float) -> None:
        super().__init__()
        self.network = copy.deepcopy(encoder).requires_grad_(False)
        self.momentum = momentum

    @torch.no_grad()
    def update(self, encoder: nn.Module, progress: float | Tensor = 0.0) -> None:
        """Update the moving average.

        The parameters become momentum * self + (1 - momentum) * encoder. The momentum starts at the
        constructor's and rises to 1 with `progress`, the fraction of the run. A progress () in
        float64 on the device is not read, so that a CUDA graph can hold the update.
        """
        # one fused call: a loop over a ResNet-50's parameters takes several times as long
        averaged: list[Tensor] = list(self.network.parameters())
        source: list[Tensor] = list(encoder.parameters())
        if isinstance(progress, Tensor):
            weight = 1 - rising_momentum(self.momentum, progress)
            torch._foreach_lerp_(averaged, source, [weight.to(t.dtype) for t in averaged])
        else:
            torch._foreach_lerp_(averaged, source, 1 - rising_momentum(self.momentum, progress))

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Return embeddings (n, d) of images (n, 3, H, W), without gradient."""
        embeddings: Tensor = self.network(images)
        return embeddings

    def positive_keys(
        self, views: list[Tensor], bn_splits: int, key_forward: KeyForward = "concatenated"
    ) -> Tensor:
        """Return normalized keys (n, M, d) of M views.

        views (n, 3, H, W). float32, without gradient.
        """
        batches = [torch.cat(views)] if key_forward == "concatenated" else views
        keys = [shuffled_forward(self, images, bn_splits) for images in batches]
        unit_keys = normalize(torch.cat(keys).float(), dim=1)
        return unit_keys.view(len(views), -1, unit_keys.shape[1]).transpose(0, 1)

    def query_and_keys(
        self,
        encoder: nn.Module,
        views: list[Tensor],
        bn_splits: int,
        key_forward: KeyForward = "concatenated",
    ) -> tuple[Tensor, Tensor]:
        """Update from the encoder; return queries and keys.

        They are (n, d) and (n, M, d). views: 1 + M of (n, 3, H, W). The encoder embeds the first
        view, and this encoder the others. Both results are float32 and of unit length; the keys get
        no gradient.
        """
        self.update(encoder)
        keys = self.positive_keys(views[1:], bn_splits, key_forward)
        query = split_forward(encoder, views[0], bn_splits)
        return normalize(query.float(), dim=1), keys


def rising_momentum(start: float, progress: Number) -> Number:
    """Return the momentum at a fraction of the run.

    It rises to 1 by half a cosine, as in BYOL.
    """
    cosine: Number = (torch.cos if isinstance(progress, Tensor) else math.cos)(math.pi * progress)
    return 1 - (1 - start) * (1 + cosine) / 2


def positive_metrics(query: Tensor, keys: Tensor) -> dict[str, Tensor]:
    """Return statistics of the similarities of queries and keys.

    query (n, d), keys (n, M, d).
    """
    similarity = similarities(query.detach()[:, None], keys)
    return {
        "positive_similarity": similarity.mean(),
        "positive_variance": similarity.var(dim=1, correction=0).mean(),
    }


def similarities(queries: Tensor, keys: Tensor) -> Tensor:
    """Return inner products (...) of rows (..., d), in float32.

    Axes are broadcast.
    """
    return (queries.float() * keys.float()).sum(dim=-1)
