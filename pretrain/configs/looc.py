"""Settings of LooC."""

from dataclasses import dataclass
from typing import Literal

from pretrain.parts.view import Augmentation


@dataclass(frozen=True, kw_only=True)
class LooCConfig:
    """Settings of LooC and LooC++; where the paper is silent, MoCo v2's."""

    designated: tuple[Augmentation, ...] = ("color", "rotation")
    """Augmentations with a head of their own, which must not be invariant to them, in the order of
    heads 1 to n; none is MoCo."""
    coincidences: Literal["literal", "redrawn"] = "literal"
    """Treatment of two views that get the same augmentation by chance: negatives of each other, as
    in equation 2, or drawn again until they differ."""
    conv5_heads: bool = False
    """LooC++: a layer4 in each head; the features of all heads are exported side by side."""
    temperature: float = 0.2
    """Tau, divides cosine similarities."""
    queue_size: int = 16_384
    """K, keys of each head."""
    momentum: float = 0.999
    """Rate of the momentum encoder, per step."""
    embedding_dim: int = 128
    """d."""
    bn_splits: int = 1
    """Groups of images in one process, each with its own batch-norm statistics."""


@dataclass(frozen=True, kw_only=True)
class MoCoPPConfig:
    """Settings of MoCo++; where the paper is silent, MoCo v2's."""

    num_heads: int = 4
    """h, as many as LooC++ with three designated augmentations has."""
    temperature: float = 0.2
    """Tau, divides cosine similarities."""
    queue_size: int = 16_384
    """K, keys of each head."""
    momentum: float = 0.999
    """Rate of the momentum encoder, per step."""
    embedding_dim: int = 128
    """d."""
    bn_splits: int = 1
    """Groups of images in one process, each with its own batch-norm statistics."""
