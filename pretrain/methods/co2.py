"""CO2: query and key should have equal similarities to negatives.

Wei et al., ICLR 2021, arXiv:2010.02217.
"""

from torch import Tensor, nn

from pretrain.method import Method
from pretrain.parts.heads import moco_projector
from pretrain.parts.losses import instance_discrimination
from pretrain.parts.momentum_encoder import MomentumEncoder
from pretrain.parts.queue import KeyQueue, queue_divergence
from pretrain.recipes.co2 import CO2Config


def consistency_loss(query: Tensor, key: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
    """Return the symmetric KL divergence of eq. 4, in nats.

    query (n, d), key (n, d), queue (K, d), rows of unit length. The two distributions are softmaxes
    of the similarities to the negatives alone. The loss is half the sum of both directions,
    averaged over the batch; it is 0 if each query equals its key. Only the query gets a gradient,
    since the key is a target. Computed in float32, also under autocast.
    """
    return queue_divergence(query, key, queue, temperature=temperature).mean()


class CO2(Method):
    """MoCo with an additional consistency loss."""

    batch_settings = ("bn_splits", "queue_size")

    def __init__(self, backbone: nn.Module, feature_dim: int, config: CO2Config) -> None:
        super().__init__()
        self.config = config
        projector = moco_projector(config.projector, feature_dim, config.embedding_dim)
        self.set_encoder(backbone, projector)
        self.key_encoder = MomentumEncoder(self.encoder, config.momentum)
        self.queue = KeyQueue(config.queue_size, config.embedding_dim)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of two views (n, 3, H, W).

        The first is the query. progress has no effect.
        """
        config = self.config
        query, keys = self.key_encoder.query_and_keys(self.encoder, views, config.bn_splits)
        key = keys[:, 0]
        negatives = self.queue.keys
        metrics = instance_discrimination(query, key, negatives, temperature=config.temperature)
        consistency = consistency_loss(
            query, key, negatives, temperature=config.consistency_temperature
        )
        # eq. 5 is this sum; the paper calls it a weighted average
        loss = metrics["loss"] + config.consistency_weight * consistency
        self.queue.push(key)  # after the losses: negatives come from past steps
        return {**metrics, "loss": loss, "consistency": consistency.detach()}
