"""SwAV: predict a view's cluster from the image's other views.

Caron et al., NeurIPS 2020, arXiv:2006.09882.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.method import Method
from pretrain.parts.gather import (
    max_over_processes,
    num_processes,
    own_share,
    sum_over_processes,
)
from pretrain.parts.heads import features_by_size, mlp_with_norm
from pretrain.parts.losses import cross_view_entropy
from pretrain.parts.queue import key_queues
from pretrain.parts.view import View
from pretrain.recipes.swav import SwAVConfig

MIN_EPSILON = 0.025
"""Smallest epsilon for which exponentials of cosines fit into float32."""
NUM_ASSIGNED_VIEWS = 2
"""A: the first A large views get codes."""


@torch.no_grad()
def sinkhorn(scores: Tensor, *, epsilon: float, num_iterations: int) -> Tensor:
    """Return the codes (..., n, K) of eq. 5, without gradient.

    scores: cosines (..., n, K). Each iteration scales the codes so that each prototype gets an
    equal fraction of the N images of all processes, and then so that each image's code sums to 1.
    The iterations converge to the codes of section 3.1, which maximize the score plus epsilon times
    the entropy. Rows of -inf are ignored. Computed in float32, also under autocast.
    """
    if epsilon < MIN_EPSILON:
        return _log_sinkhorn(scores.float() / epsilon, num_iterations).exp_()
    tiny = torch.finfo(torch.float32).tiny
    # cosines are at most 1: no exponential overflows, and all processes subtract the same number
    codes = ((scores.float() - 1) / epsilon).exp_()
    for _ in range(num_iterations):
        codes.div_(sum_over_processes(codes.sum(dim=-2, keepdim=True)).clamp_min(tiny))
        codes.div_(codes.sum(dim=-1, keepdim=True).clamp_min(tiny))
    return codes


def _log_sinkhorn(logits: Tensor, num_iterations: int) -> Tensor:
    """Return the log codes of `sinkhorn`.

    logits (..., n, K): scores divided by epsilon.
    """
    lowest = torch.finfo(torch.float32).min  # rows of -inf stay -inf instead of NaN
    for _ in range(num_iterations):
        largest = max_over_processes(logits.amax(dim=-2, keepdim=True)).clamp_min(lowest)
        sums = sum_over_processes((logits - largest).exp().sum(dim=-2, keepdim=True))
        logits = logits - (largest + sums.log()).clamp_min(lowest)
        logits = logits - logits.logsumexp(dim=-1, keepdim=True).clamp_min(lowest)
    return logits


def swav_loss(scores: Tensor, codes: Tensor, *, temperature: float) -> Tensor:
    """Return the cross entropy of codes and predictions (eq. 6), in nats.

    scores (V, n, K) are cosines of embeddings and prototypes; codes (A, n, K) belong to the first A
    views. The loss is the mean over the terms of eq. 6; with two views, it is half of eq. 1.
    Computed in float32, also under autocast.
    """
    return cross_view_entropy(scores.float() / temperature, codes)


class SwAV(Method):
    """An encoder, prototypes, and a queue for each view with codes."""

    batch_settings = ("queue_size", "sync_bn")

    prototypes: nn.Parameter
    num_queued: Tensor

    def __init__(self, backbone: nn.Module, feature_dim: int, config: SwAVConfig) -> None:
        super().__init__()
        if config.queue_size % num_processes():
            raise ValueError(
                f"queue_size {config.queue_size} is not divisible by {num_processes()} processes: "
                f"choose a multiple"
            )
        self.config = config
        self.views = (View(),) * config.num_large_views
        self.views += (View(small=True),) * config.num_small_views
        projector = mlp_with_norm(feature_dim, config.hidden_dim, config.embedding_dim, bias=True)
        self.set_encoder(backbone, projector, sync_bn=config.sync_bn)
        directions = torch.randn(config.num_prototypes, config.embedding_dim)
        self.prototypes = nn.Parameter(normalize(directions, dim=1))
        # the loop drops these gradients until this fraction of the run
        self.frozen_until = {"prototypes": config.prototypes_from}
        num_queues = NUM_ASSIGNED_VIEWS if config.queue_size else 0
        self.queues = key_queues(num_queues, config.queue_size, config.embedding_dim)
        self.register_buffer("num_queued", torch.zeros((), dtype=torch.int64))

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of views (n, 3, H, W), small ones last.

        progress is the fraction of the run.
        """
        config = self.config
        backbone, projector = self.encoder
        with torch.no_grad():  # normalize again after the last optimizer step
            self.prototypes.copy_(normalize(self.prototypes, dim=1))
        # the backbone gets each size separately, the projector all at once, as in the code
        projected = projector(features_by_size(backbone, views))
        with torch.autocast(projected.device.type, enabled=False):
            embeddings = normalize(projected.float(), dim=1).unflatten(0, (len(views), -1))
            codes = self._codes(embeddings[:NUM_ASSIGNED_VIEWS], progress)
            scores = embeddings @ self.prototypes.T
            loss = swav_loss(scores, codes, temperature=config.temperature)
        usage = codes.mean(dim=(0, 1))
        return {
            "loss": loss,
            "code_entropy": -torch.special.xlogy(codes, codes).sum(dim=2).mean(),
            # in nats: log K if all prototypes are used equally
            "prototype_entropy": -torch.special.xlogy(usage, usage).sum(),
        }

    @torch.no_grad()
    def _codes(self, embeddings: Tensor, progress: float) -> Tensor:
        """Return codes (A, n, K); also queue the embeddings (A, n, d)."""
        config = self.config
        scores = embeddings @ self.prototypes.T
        num_images = scores.shape[1]
        if self.queues and progress > config.queue_from:
            # a scalar tensor, and -inf instead of a branch, so that no step waits for the device
            is_full = self.num_queued >= config.queue_size
            past = torch.stack([own_share(queue.keys) for queue in self.queues])
            past_scores = (past @ self.prototypes.T).where(is_full, -math.inf)
            scores = torch.cat([scores, past_scores], dim=1)
            for queue, rows in zip(self.queues, embeddings, strict=True):
                queue.push(rows)
            self.num_queued.add_(num_images * num_processes())
        codes = sinkhorn(scores, epsilon=config.epsilon, num_iterations=config.sinkhorn_iterations)
        return codes[:, :num_images]
