"""The vanilla loss of many positive keys: InfoNCE with each of them, averaged.

Equation 3 of Cai et al., NeurIPS 2020, arXiv:2009.14776. JCL bounds its limit of infinitely many
keys.
"""

import torch
from torch import Tensor, nn

from pretrain.method import KeyMethod
from pretrain.parts.heads import mlp
from pretrain.parts.momentum_encoder import positive_metrics, similarities
from pretrain.parts.queue import queue_logsumexp
from pretrain.parts.view import View
from pretrain.recipes.moco import MultiKeyConfig


def multi_key_loss(query: Tensor, keys: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
    """Return eq. 3, mean over the batch, in nats; float32, also under autocast.

    query (n, d), keys (n, M, d), queue (K, d); rows of unit length. Only the query gets a gradient
    through the queue. One key gives InfoNCE.
    """
    positive = similarities(query, keys) / temperature
    negative = queue_logsumexp(query, queue, temperature=temperature)  # the same for all M keys
    return (torch.logaddexp(positive, negative[:, None]) - positive).mean()


class MultiKey(KeyMethod):
    """An encoder, its momentum encoder, and a queue of first keys; with one key it is MoCo v2."""

    def __init__(self, backbone: nn.Module, feature_dim: int, config: MultiKeyConfig) -> None:
        super().__init__()
        self.config = config
        self.views = (View(),) * (1 + config.num_keys)
        projector = mlp(feature_dim, feature_dim, config.embedding_dim)
        self.set_networks(backbone, projector, config)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of 1 + M views (n, 3, H, W), query first; progress has no effect."""
        config = self.config
        query, keys = self.query_and_keys(views, config.bn_splits, config.key_forward)
        loss = multi_key_loss(query, keys, self.queue.keys, temperature=config.temperature)
        # the paper does not say what is queued: one key per image, of unit length, as in MoCo
        self.queue.push(keys[:, 0])
        return {"loss": loss, **positive_metrics(query, keys)}
