"""MoCo: recognize a query's key among a queue of past keys.

v1: He et al., CVPR 2020, arXiv:1911.05722; v2: Chen et al., arXiv:2003.04297; with a symmetric
loss: Chen & He, CVPR 2021, arXiv:2011.10566, table 4.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.method import Method
from pretrain.parts.heads import moco_projector
from pretrain.parts.losses import instance_discrimination
from pretrain.parts.momentum_encoder import MomentumEncoder
from pretrain.parts.queue import KeyQueue, queue_divergence
from pretrain.parts.sync_bn import split_forward
from pretrain.parts.view import View
from pretrain.recipes.moco import MoCoConfig


class MoCo(Method):
    """An encoder, its momentum encoder, and a queue of keys."""

    batch_settings = ("bn_splits", "queue_size")

    def __init__(self, backbone: nn.Module, feature_dim: int, config: MoCoConfig) -> None:
        super().__init__()
        if config.key_only and config.symmetric:
            raise ValueError(
                f"key_only {config.key_only} excludes augmentations from queries, but with "
                "symmetric=True every view is a query: choose one of the two"
            )
        if conflicting := set(config.shared) & set(config.key_only):
            raise ValueError(
                f"{sorted(conflicting)} cannot be both shared with the query and withheld from it: "
                "list each augmentation in shared or in key_only"
            )
        self.config = config
        self.views = (View(without=config.key_only), View(copies=config.shared))
        projector = moco_projector(config.projector, feature_dim, config.embedding_dim)
        self.set_encoder(backbone, projector)
        self.key_encoder = MomentumEncoder(self.encoder, config.momentum)
        self.queue = KeyQueue(config.queue_size, config.embedding_dim)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of two views, query first.

        views (n, 3, H, W). progress has no effect. With a symmetric loss, both keys of an image are
        queued, the second view's first.
        """
        self.key_encoder.update(self.encoder)
        first, second = views
        pairs = [(first, second), (second, first)] if self.config.symmetric else [(first, second)]
        splits = self.config.bn_splits
        keys = [self.key_encoder.positive_keys([images], splits)[:, 0] for _, images in pairs]
        directions = [self._contrast(pair[0], key) for pair, key in zip(pairs, keys, strict=True)]
        for key in keys:
            self.queue.push(key)  # after the losses: negatives come from past steps
        return {
            name: torch.stack([metrics[name] for metrics in directions]).mean()
            for name in directions[0]
        }

    def _contrast(self, images: Tensor, key: Tensor) -> dict[str, Tensor]:
        """Return loss and metrics of queries with keys (n, d).

        images (n, 3, H, W).
        """
        config = self.config
        query = normalize(split_forward(self.encoder, images, config.bn_splits).float(), dim=1)
        metrics = instance_discrimination(
            query,
            key,
            self.queue.keys,
            temperature=config.temperature,
            label_smoothing=config.label_smoothing,
        )
        if config.consistency_temperature > 0 and self.metrics_read:
            metrics["consistency"] = queue_divergence(
                query.detach(), key, self.queue.keys, temperature=config.consistency_temperature
            ).mean()
        return metrics
