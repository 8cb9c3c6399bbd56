"""CO2: a query and its key should have the same similarities to the negatives.

Wei et al., ICLR 2021, arXiv:2010.02217.
"""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.method import BatchNeeds, Method
from pretrain.parts.instance_discrimination import instance_discrimination
from pretrain.parts.momentum_encoder import MomentumEncoder
from pretrain.parts.projector import Projector, moco_projector
from pretrain.parts.queue import KeyQueue
from pretrain.parts.queue_divergence import queue_divergence
from pretrain.parts.shuffle_bn import shuffled_forward, split_forward
from pretrain.parts.view import View


def consistency_loss(query: Tensor, key: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
    """Return the symmetric KL divergence of eq. 4, mean over the batch, in nats.

    query (n, d), key (n, d), queue (K, d); rows of unit length; float32, also under autocast. It is
    half the sum of both directions, between softmaxes over the negatives only, and 0 if the query
    equals its key. The key is a target: only the query gets a gradient.
    """
    return queue_divergence(query, key, queue, temperature=temperature).mean()


@dataclass(frozen=True, kw_only=True)
class CO2Config:
    """Settings of CO2; the defaults are the paper's for ImageNet-1k on MoCo v2."""

    temperature: float = 0.2
    """Tau, divides the cosine similarities of instance discrimination; 0.07 on MoCo v1."""
    consistency_temperature: float = 0.05
    """Tau_con, divides the cosine similarities of eq. 4; 0.04 on MoCo v1."""
    consistency_weight: float = 0.3
    """Alpha of eq. 5; 10 on MoCo v1."""
    projector: Projector = "mlp"
    """Kind of the projector; "linear" on MoCo v1."""
    queue_size: int = 65_536
    """K, keys."""
    momentum: float = 0.999
    """Rate of the momentum encoder, per step."""
    embedding_dim: int = 128
    """d."""
    bn_splits: int = 1
    """Groups of images in one process, each with its own batch-norm statistics."""


class CO2(Method):
    """MoCo with one more loss: an encoder, its momentum encoder, and a queue of keys."""

    def __init__(self, backbone: nn.Module, feature_dim: int, config: CO2Config) -> None:
        super().__init__()
        self.config = config
        self.views = (View(), View())
        self.backbone = backbone  # what export.py writes
        projector = moco_projector(config.projector, feature_dim, config.embedding_dim)
        self.encoder = nn.Sequential(backbone, projector)
        self.key_encoder = MomentumEncoder(self.encoder, config.momentum)
        self.queue = KeyQueue(config.queue_size, config.embedding_dim)

    @staticmethod
    def batch_needs(config: CO2Config) -> BatchNeeds:
        """Return the groups that a batch must split into and the queue that must hold its keys."""
        return BatchNeeds(bn_splits=config.bn_splits, queue_size=config.queue_size)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of two views (n, 3, H, W), query first; progress has no effect."""
        config = self.config
        self.key_encoder.update(self.encoder)
        key = shuffled_forward(self.key_encoder, views[1], config.bn_splits)
        key = normalize(key.float(), dim=1)
        query = normalize(split_forward(self.encoder, views[0], config.bn_splits).float(), dim=1)
        negatives = self.queue.keys
        contrast = instance_discrimination(query, key, negatives, temperature=config.temperature)
        consistency = consistency_loss(
            query, key, negatives, temperature=config.consistency_temperature
        )
        # eq. 5 is this sum; the paper calls it a weighted average
        loss = contrast.loss + config.consistency_weight * consistency
        self.queue.push(key)  # after the losses: negatives are those of past steps
        return {
            "loss": loss,
            "instance_discrimination": contrast.info_nce.detach(),
            "consistency": consistency.detach(),
            "instance_accuracy": contrast.accuracy,
        }
