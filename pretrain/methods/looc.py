"""LooC: an embedding space for each augmentation, which preserves its effect.

Xiao et al., "What Should Not Be Contrastive in Contrastive Learning", ICLR 2021, arXiv:2008.05659.
In LooC++ and the baseline MoCo++, each head has its own last stage.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

from pretrain.method import Method
from pretrain.parts.heads import ProjectorHeads
from pretrain.parts.momentum_encoder import MomentumEncoder, similarities
from pretrain.parts.queue import key_queues, queue_logsumexp
from pretrain.parts.resnet import BranchedResNet
from pretrain.parts.sync_bn import shuffled_forward, split_forward
from pretrain.parts.view import View
from pretrain.recipes.looc import LooCConfig, MoCoPPConfig


def looc_loss(queries: Tensor, keys: Tensor, queues: Tensor, *, temperature: float) -> Tensor:
    """Return LooC's loss (equation 2), averaged over heads and batch, in nats.

    queries (h, n, d), keys (h, v, n, d) and queues (h, K, d) have rows of unit length. The first
    two axes of keys are heads and key views, equally many. The positive of head i is key view i.
    The other key views of the image are negatives of head i, even if one has the query's
    augmentation by chance. Head 0 has no such negatives and reads only keys[0, 0], so keys[0, 1:]
    may have any finite values. With one head, the loss is InfoNCE. Computed in float32, also under
    autocast.
    """
    similarity = similarities(queries[:, None], keys) / temperature  # (h, v, n)
    positive = similarity.diagonal().T
    same_image = torch.cat([positive[:1], similarity[1:].logsumexp(dim=1)])
    negative = negative_logsumexp(queries, queues, temperature=temperature)
    return (torch.logaddexp(same_image, negative) - positive).mean()


def moco_pp_loss(queries: Tensor, keys: Tensor, queues: Tensor, *, temperature: float) -> Tensor:
    """Return InfoNCE (equation 1), averaged over heads and batch, in nats.

    queries (h, n, d), keys (h, n, d), queues (h, K, d), rows of unit length. Computed in float32.
    """
    positive = similarities(queries, keys) / temperature
    negative = negative_logsumexp(queries, queues, temperature=temperature)
    return (torch.logaddexp(positive, negative) - positive).mean()


def negative_logsumexp(queries: Tensor, queues: Tensor, *, temperature: float) -> Tensor:
    """Return the log-sum-exp (h, n) of each head over its queue.

    queries (h, n, d), queues (h, K, d).
    """
    pairs = zip(queries, queues, strict=True)
    return torch.stack([queue_logsumexp(*pair, temperature=temperature) for pair in pairs])


class LooC(Method):
    """An encoder with n + 1 heads, its momentum encoder, and queues.

    Head 0 is MoCo's; head i preserves the effect of designated augmentation i. The first view is
    the query; key view 0 shares no augmentation with it, and key view i shares augmentation i.
    """

    batch_settings = ("bn_splits", "queue_size")

    def __init__(self, backbone: nn.Module, feature_dim: int, config: LooCConfig) -> None:
        super().__init__()
        if len(set(config.designated)) < len(config.designated):
            raise ValueError(
                f"designated contains an augmentation twice: {', '.join(config.designated)}. The "
                f"positive of one head would be a negative of the other: name each once"
            )
        self.config = config
        self.views = (View(), *key_views(config))
        num_heads = 1 + len(config.designated)
        self.backbone = BranchedResNet(backbone, num_heads) if config.conv5_heads else backbone
        self.encoder = ProjectorHeads(self.backbone, feature_dim, config.embedding_dim, num_heads)
        self.projectors = tuple(self.encoder.projectors)
        self.key_encoder = MomentumEncoder(self.encoder, config.momentum)
        self.queues = key_queues(num_heads, config.queue_size, config.embedding_dim)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of the query and key views.

        views (n, 3, H, W). progress has no effect.
        """
        config = self.config
        self.key_encoder.update(self.encoder)
        keys = self._keys(views[1:])
        queries = unit_rows(split_forward(self.encoder, views[0], config.bn_splits))
        negatives = torch.stack([queue.keys for queue in self.queues])
        loss = looc_loss(queries, keys, negatives, temperature=config.temperature)
        for queue, head_keys in zip(self.queues, keys.diagonal().permute(2, 0, 1), strict=True):
            queue.push(head_keys)  # head i queues key view i
        similarity = similarities(queries.detach()[:, None], keys)
        metrics = {"loss": loss, "positive_similarity": similarity.diagonal().mean()}
        if config.designated:
            positive = similarity[1:].diagonal(offset=1)
            num_negatives = similarity[1:].numel() - positive.numel()
            metrics["same_image_similarity"] = (
                similarity[1:].sum() - positive.sum()
            ) / num_negatives
        return metrics

    def _keys(self, views: list[Tensor]) -> Tensor:
        """Return keys (h, v, n, d) of the key views.

        views (n, 3, H, W). Keys that the loss does not read are zero.
        """
        splits = self.config.bn_splits
        later_heads = partial(self.key_encoder.network, first=1)
        first_view, *other_views = views
        keys = [unit_rows(shuffled_forward(self.key_encoder, first_view, splits))]
        for images in other_views:
            # head 0 reads only key view 0: its keys of the other views are zero
            later_keys = unit_rows(shuffled_forward(later_heads, images, splits))
            keys.append(pad(later_keys, (0, 0, 0, 0, 1, 0)))
        return torch.stack(keys, dim=1)


def key_views(config: LooCConfig) -> tuple[View, ...]:
    """Return key view 0 and, for each augmentation, key view i.

    Key view 0 shares no augmentation with the query, and key view i shares one.
    """
    shared_augmentations = [(), *((name,) for name in config.designated)]
    return tuple(View(copies=copies) for copies in shared_augmentations)


def unit_rows(embeddings: Tensor) -> Tensor:
    """Normalize embeddings (n, h, d) to float32 rows (h, n, d)."""
    return normalize(embeddings.float(), dim=2).transpose(0, 1)


class MoCoPP(Method):
    """MoCo with the heads of LooC++.

    All heads use one pair of views; each has a queue.
    """

    batch_settings = ("bn_splits", "queue_size")

    def __init__(self, backbone: nn.Module, feature_dim: int, config: MoCoPPConfig) -> None:
        super().__init__()
        self.config = config
        num_heads, dim = config.num_heads, config.embedding_dim
        self.backbone = BranchedResNet(backbone, num_heads)
        self.encoder = ProjectorHeads(self.backbone, feature_dim, dim, num_heads)
        self.projectors = tuple(self.encoder.projectors)
        self.key_encoder = MomentumEncoder(self.encoder, config.momentum)
        self.queues = key_queues(num_heads, config.queue_size, dim)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of two views, query first.

        views (n, 3, H, W). progress has no effect.
        """
        config = self.config
        self.key_encoder.update(self.encoder)
        keys = unit_rows(shuffled_forward(self.key_encoder, views[1], config.bn_splits))
        queries = unit_rows(split_forward(self.encoder, views[0], config.bn_splits))
        negatives = torch.stack([queue.keys for queue in self.queues])
        loss = moco_pp_loss(queries, keys, negatives, temperature=config.temperature)
        for queue, head_keys in zip(self.queues, keys, strict=True):
            queue.push(head_keys)
        similarity = similarities(queries.detach(), keys).mean()
        return {"loss": loss, "positive_similarity": similarity}
