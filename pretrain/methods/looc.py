"""LooC: an embedding space per augmentation that keeps what the augmentation changes.

Xiao et al., "What Should Not Be Contrastive in Contrastive Learning", ICLR 2021,
arXiv:2008.05659. LooC++ and the baseline MoCo++ have a copy of the last stage in each head.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

from pretrain.parts.heads import BranchedResNet, HeadQueues, LaterHeads, ProjectorHeads
from pretrain.parts.momentum_encoder import MomentumEncoder
from pretrain.parts.queue_logsumexp import queue_logsumexp
from pretrain.parts.shuffle_bn import shuffled_forward, split_forward
from pretrain.parts.view import Augmentation, View


def looc_loss(queries: Tensor, keys: Tensor, queues: Tensor, *, temperature: float) -> Tensor:
    """Equation 2, mean over heads and batch, in nats; float32, also under autocast.

    queries (h, n, d); keys (h, v, n, d), key view v as head h sees it, h = v; queues (h, K, d);
    rows of unit length. Head i attracts key view i; the other views of the image repel it, except
    in head 0, which reads keys[0, 0] alone: any finite values may stand in keys[0, 1:]. One head
    gives InfoNCE. A view that has the query's augmentation by chance repels all the same.
    """
    similarity = similarities(queries, keys) / temperature
    positive = similarity.diagonal().T
    same_image = torch.cat([positive[:1], similarity[1:].logsumexp(dim=1)])
    negative = negatives(queries, queues, temperature=temperature)
    return (torch.logaddexp(same_image, negative) - positive).mean()


def moco_pp_loss(queries: Tensor, keys: Tensor, queues: Tensor, *, temperature: float) -> Tensor:
    """Equation 1 (InfoNCE) in each head, mean over heads and batch, in nats; float32.

    queries (h, n, d), keys (h, n, d), queues (h, K, d); rows of unit length.
    """
    positive = similarities(queries, keys[:, None]).squeeze(1) / temperature
    negative = negatives(queries, queues, temperature=temperature)
    return (torch.logaddexp(positive, negative) - positive).mean()


def similarities(queries: Tensor, keys: Tensor) -> Tensor:
    """Queries (h, n, d) times keys (h, v, n, d), row by row: (h, v, n), always float32."""
    return (queries.float()[:, None] * keys.float()).sum(dim=3)


def negatives(queries: Tensor, queues: Tensor, *, temperature: float) -> Tensor:
    """Log-sum-exp of each head's queries (h, n, d) over its own queue (h, K, d): (h, n)."""
    return torch.stack(
        [
            queue_logsumexp(query, queue, temperature=temperature)
            for query, queue in zip(queries, queues, strict=True)
        ]
    )


@dataclass(frozen=True, kw_only=True)
class LooCConfig:
    """Settings of LooC and LooC++; the paper leaves to MoCo v2 what it does not say."""

    designated: tuple[Augmentation, ...] = ("color", "rotation")
    """Augmentations that a head of their own must not be invariant to, in the order of heads 1 to
    n; none is MoCo."""
    coincidences: Literal["literal", "redrawn"] = "literal"
    """Views of an image that get the same augmentation by chance repel each other, as equation 2
    has it, or are drawn again until they differ."""
    conv5_heads: bool = False
    """LooC++: each head has a copy of layer4, and their features are exported side by side."""
    temperature: float = 0.2
    """Tau, divides cosine similarities."""
    queue_size: int = 16_384
    """K, keys of each head."""
    momentum: float = 0.999
    """Of the momentum encoder, per step."""
    embedding_dim: int = 128
    """d."""
    bn_splits: int = 1
    """Groups of images in one process, each with its own batch-norm statistics."""


class LooC(nn.Module):
    """Encoder of n + 1 heads, its momentum copy, and a queue for each head.

    Head 0 is MoCo's; head i keeps what designated augmentation i changes. The first view is the
    query, the second, key view 0, shares nothing with it, and key view i has its augmentation i.
    """

    def __init__(self, backbone: nn.Module, feature_dim: int, config: LooCConfig) -> None:
        super().__init__()
        if len(set(config.designated)) < len(config.designated):
            raise ValueError(
                f"designated names an augmentation twice: {', '.join(config.designated)}; two "
                f"heads for one would repel what they must attract, so name each once"
            )
        self.config = config
        self.views = (View(), *key_views(config))
        num_heads = 1 + len(config.designated)
        self.backbone = BranchedResNet(backbone, num_heads) if config.conv5_heads else backbone
        self.encoder = ProjectorHeads(self.backbone, feature_dim, config.embedding_dim, num_heads)
        self.key_encoder = MomentumEncoder(self.encoder, config.momentum)
        self.queues = HeadQueues(num_heads, config.queue_size, config.embedding_dim)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """views: 2 + n of (n, 3, H, W), query first; progress is not needed."""
        config = self.config
        self.key_encoder.follow(self.encoder)
        keys = self._keys(views[1:])
        queries = unit_rows(split_forward(self.encoder, views[0], config.bn_splits))
        loss = looc_loss(queries, keys, self.queues.keys(), temperature=config.temperature)
        self.queues.push(keys.diagonal().permute(2, 0, 1))  # view i as head i sees it
        similarity = similarities(queries.detach(), keys)
        logged = {"loss": loss, "positive_similarity": similarity.diagonal().mean()}
        if config.designated:
            own = similarity[1:].diagonal(offset=1)
            num_others = similarity[1:].numel() - own.numel()
            logged["same_image_similarity"] = (similarity[1:].sum() - own.sum()) / num_others
        return logged

    def _keys(self, views: list[Tensor]) -> Tensor:
        """Keys (h, v, n, d) of the key views (n, 3, H, W); zeros where the loss reads none."""
        splits = self.config.bn_splits
        later_heads = LaterHeads(self.key_encoder.network)
        first, *others = views
        keys = [unit_rows(shuffled_forward(self.key_encoder, first, splits))]
        for images in others:
            seen = unit_rows(shuffled_forward(later_heads, images, splits))
            keys.append(pad(seen, (0, 0, 0, 0, 1, 0)))
        return torch.stack(keys, dim=1)


def key_views(config: LooCConfig) -> tuple[View, ...]:
    """Key view 0, which shares nothing with the query, and key view i with its augmentation i."""
    shared = [(), *((name,) for name in config.designated)]
    redrawn = config.designated if config.coincidences == "redrawn" else ()
    return tuple(
        View(copies=copies, differs=tuple(name for name in redrawn if name not in copies))
        for copies in shared
    )


def unit_rows(embeddings: Tensor) -> Tensor:
    """(n, h, d) -> (h, n, d) of unit length, float32."""
    return normalize(embeddings.float(), dim=2).transpose(0, 1)


@dataclass(frozen=True, kw_only=True)
class MoCoPPConfig:
    """Settings of MoCo++; the paper leaves to MoCo v2 what it does not say."""

    num_heads: int = 4
    """h: as many as LooC++ of three designated augmentations has."""
    temperature: float = 0.2
    """Tau, divides cosine similarities."""
    queue_size: int = 16_384
    """K, keys of each head."""
    momentum: float = 0.999
    """Of the momentum encoder, per step."""
    embedding_dim: int = 128
    """d."""
    bn_splits: int = 1
    """Groups of images in one process, each with its own batch-norm statistics."""


class MoCoPP(nn.Module):
    """MoCo with the heads of LooC++: all see the same pair of views, each has its own queue."""

    views = (View(), View())

    def __init__(self, backbone: nn.Module, feature_dim: int, config: MoCoPPConfig) -> None:
        super().__init__()
        self.config = config
        num_heads = config.num_heads
        self.backbone = BranchedResNet(backbone, num_heads)
        self.encoder = ProjectorHeads(self.backbone, feature_dim, config.embedding_dim, num_heads)
        self.key_encoder = MomentumEncoder(self.encoder, config.momentum)
        self.queues = HeadQueues(num_heads, config.queue_size, config.embedding_dim)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """views: two of (n, 3, H, W), query first; progress is not needed."""
        config = self.config
        self.key_encoder.follow(self.encoder)
        keys = unit_rows(shuffled_forward(self.key_encoder, views[1], config.bn_splits))
        queries = unit_rows(split_forward(self.encoder, views[0], config.bn_splits))
        loss = moco_pp_loss(queries, keys, self.queues.keys(), temperature=config.temperature)
        self.queues.push(keys)
        similarity = similarities(queries.detach(), keys[:, None])
        return {"loss": loss, "positive_similarity": similarity.mean()}
