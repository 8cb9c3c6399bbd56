"""JCL: contrast a query with the mean and covariance of many keys.

Cai et al., NeurIPS 2020, arXiv:2009.14776. multi_key contrasts with each key and averages (equation
3); JCL bounds its limit for infinitely many keys.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.method import Method
from pretrain.parts.heads import mlp
from pretrain.parts.momentum_encoder import MomentumEncoder, positive_metrics, similarities
from pretrain.parts.queue import KeyQueue, queue_logsumexp
from pretrain.parts.view import View
from pretrain.recipes.jcl import JCLConfig
from pretrain.recipes.moco import MultiKeyConfig


def jcl_loss(
    query: Tensor, keys: Tensor, queue: Tensor, *, temperature: float, covariance_weight: float
) -> Tensor:
    """Return JCL's upper bound for infinitely many keys (eq. 8), in nats.

    query (n, d), keys (n, M, d), queue (K, d), rows of unit length. Averaged over the batch, and
    computed in float32, also under autocast. The queue gets no gradient. If all keys of a query are
    equal, the loss is InfoNCE.
    """
    positive = similarities(query[:, None], keys) / temperature
    attraction = positive.mean(dim=1)
    # q' Sigma q equals the variance of q' k over the keys: no d x d matrix is needed
    variance = positive.var(dim=1, correction=0)
    negative = queue_logsumexp(query, queue, temperature=temperature)
    # E[exp(a'k)] of a Gaussian k adds half the variance to the exponent, only in the partition
    positive_logit = attraction + covariance_weight / 2 * variance
    return (torch.logaddexp(positive_logit, negative) - attraction).mean()


def multi_key_loss(query: Tensor, keys: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
    """Return InfoNCE, averaged over M positive keys (eq. 3), in nats.

    query (n, d), keys (n, M, d), queue (K, d), rows of unit length. Averaged over the batch, and
    computed in float32, also under autocast. The queue gets no gradient.
    """
    positive = similarities(query[:, None], keys) / temperature
    negative = queue_logsumexp(query, queue, temperature=temperature)  # the same for all M keys
    return (torch.logaddexp(positive, negative[:, None]) - positive).mean()


class MultiKey(Method):
    """An encoder, its momentum encoder, and a queue of first keys.

    With one key it is MoCo v2.
    """

    batch_settings = ("bn_splits", "queue_size")

    def __init__(
        self, backbone: nn.Module, feature_dim: int, config: MultiKeyConfig | JCLConfig
    ) -> None:
        super().__init__()
        self.config = config
        self.views = (View(),) * (1 + config.num_keys)
        projector = mlp(feature_dim, feature_dim, config.embedding_dim)
        self.set_encoder(backbone, projector)
        self.key_encoder = MomentumEncoder(self.encoder, config.momentum)
        self.queue = KeyQueue(config.queue_size, config.embedding_dim)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of 1 + M views, query first.

        views (n, 3, H, W). progress has no effect.
        """
        config = self.config
        query, keys = self.key_encoder.query_and_keys(
            self.encoder, views, config.bn_splits, config.key_forward
        )
        loss = multi_key_loss(query, keys, self.queue.keys, temperature=config.temperature)
        # the paper does not say which keys are queued; here, one normalized key per image, as in
        # MoCo
        self.queue.push(keys[:, 0])
        return {"loss": loss, **positive_metrics(query, keys)}


class JCL(MultiKey):
    """The networks of `MultiKey`, with a queue of mean keys."""

    config: JCLConfig

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of 1 + M views, query first.

        views (n, 3, H, W). progress is the fraction of the run.
        """
        config = self.config
        query, keys = self.key_encoder.query_and_keys(
            self.encoder, views, config.bn_splits, config.key_forward
        )
        ramp = progress if config.covariance_ramp == "linear" else 1.0
        loss = jcl_loss(
            query,
            keys,
            self.queue.keys,
            temperature=config.temperature,
            covariance_weight=config.covariance_weight * ramp,
        )
        mean_key = keys.mean(dim=1)
        # after the loss: negatives come from past steps
        self.queue.push(normalize(mean_key, dim=1) if config.unit_mean else mean_key)
        return {"loss": loss, **positive_metrics(query, keys)}
