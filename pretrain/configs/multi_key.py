"""Settings of the vanilla loss of many positive keys."""

from dataclasses import dataclass

from pretrain.parts.choices import KeyForward


@dataclass(frozen=True, kw_only=True)
class MultiKeyConfig:
    """Settings of the vanilla average; the defaults are those of JCL for ImageNet-1k."""

    temperature: float = 0.2
    """Tau, divides cosine similarities."""
    num_keys: int = 5
    """M, positive keys per image; the query is not counted."""
    queue_size: int = 65_536
    """K, keys."""
    momentum: float = 0.999
    """Rate of the momentum encoder, per step."""
    embedding_dim: int = 128
    """d."""
    key_forward: KeyForward = "concatenated"
    """Images that batch norm of the keys sees: all M views of a batch, or one view at a time."""
    bn_splits: int = 1
    """Groups of images in one process, each with its own batch-norm statistics."""
