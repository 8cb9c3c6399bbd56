"""NNCLR: the nearest past neighbor is the other view's positive.

Dwibedi et al., ICCV 2021, arXiv:2104.14548. The authors published no code; recipes/nnclr.py lists
the numbers taken from reimplementations.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from pretrain.method import Method
from pretrain.parts.gather import gather, gather_with_gradient
from pretrain.parts.heads import mlp_with_norm
from pretrain.parts.queue import KeyQueue
from pretrain.recipes.nnclr import NNCLRConfig


@torch.no_grad()
def nearest_keys(query: Tensor, queue: Tensor) -> Tensor:
    """Return each query's nearest row of the queue, by cosine.

    query (n, d), queue (K, d).
    """
    with torch.autocast(query.device.type, enabled=False):
        return queue[(query.float() @ queue.float().T).argmax(dim=1)]


def neighbor_loss(neighbor: Tensor, prediction: Tensor, *, temperature: float) -> Tensor:
    """Return the cross entropy of matching predictions and neighbors.

    neighbor (n, d), prediction (n, d), rows of unit length. Row i of the logits classifies which
    prediction of the batch belongs to neighbor i, and column j which neighbor belongs to prediction
    j. The loss is averaged over rows and columns, and computed in float32, also under autocast.
    Only predictions get a gradient.
    """
    with torch.autocast(prediction.device.type, enabled=False):
        logits = neighbor.detach().float() @ prediction.float().T / temperature
        labels = torch.arange(len(logits), device=logits.device)
        return (cross_entropy(logits, labels) + cross_entropy(logits.T, labels)) / 2


class NNCLR(Method):
    """An encoder, a predictor, and a queue of past projections to search."""

    batch_settings = ("queue_size", "sync_bn")

    def __init__(self, backbone: nn.Module, feature_dim: int, config: NNCLRConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.embedding_dim
        projector = mlp_with_norm(
            feature_dim, config.hidden_dim, dim, num_hidden=2, final_norm="affine"
        )
        predictor = mlp_with_norm(dim, config.predictor_dim, dim, bias=True)
        self.set_encoder(backbone, projector, predictor, sync_bn=config.sync_bn)
        self.queue = KeyQueue(config.queue_size, config.embedding_dim)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of two views (n, 3, H, W).

        It is averaged over both directions and all processes. The first view's projections are
        queued. progress has no effect.
        """
        projections = [self.encoder(images) for images in views]
        predictions = [
            gather_with_gradient(normalize(self.predictor(z).float(), dim=1)) for z in projections
        ]
        keys = [normalize(z.detach().float(), dim=1) for z in projections]
        neighbors = [gather(nearest_keys(key, self.queue.keys)) for key in keys]
        first, second = (
            neighbor_loss(neighbor, prediction, temperature=self.config.temperature)
            for neighbor, prediction in zip(neighbors, reversed(predictions), strict=True)
        )
        similarity = (gather(keys[0]) * neighbors[0]).sum(dim=1).mean()
        self.queue.push(keys[0])  # after the loss, so that an image is not its own neighbor
        return {"loss": (first + second) / 2, "neighbor_cosine": similarity}
