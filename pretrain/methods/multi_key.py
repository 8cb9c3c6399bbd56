"""The vanilla loss of many positive keys: InfoNCE with each of them, averaged.

Equation 3 of Cai et al., NeurIPS 2020, arXiv:2009.14776. JCL bounds its limit of infinitely many
keys.
"""

import torch
from torch import Tensor, nn

from pretrain.method import Method
from pretrain.parts.heads import mlp
from pretrain.parts.momentum_encoder import (
    MomentumEncoder,
    positive_metrics,
    query_and_keys,
    similarities,
)
from pretrain.parts.queue import KeyQueue, queue_logsumexp
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


class MultiKey(Method):
    """An encoder, its momentum encoder, and a queue of first keys; with one key it is MoCo v2."""

    def __init__(self, backbone: nn.Module, feature_dim: int, config: MultiKeyConfig) -> None:
        super().__init__()
        self.config = config
        self.views = (View(),) * (1 + config.num_keys)
        self.set_encoder(backbone, mlp(feature_dim, feature_dim, config.embedding_dim))
        self.key_encoder = MomentumEncoder(self.encoder, config.momentum)
        self.queue = KeyQueue(config.queue_size, config.embedding_dim)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of 1 + M views (n, 3, H, W), query first; progress has no effect."""
        config = self.config
        self.key_encoder.update(self.encoder)
        query, keys = query_and_keys(
            self.encoder,
            self.key_encoder,
            views,
            key_forward=config.key_forward,
            bn_splits=config.bn_splits,
        )
        loss = multi_key_loss(query, keys, self.queue.keys, temperature=config.temperature)
        # the paper does not say what is queued: one key per image, of unit length, as in MoCo
        self.queue.push(keys[:, 0])
        return {"loss": loss, **positive_metrics(query, keys)}
