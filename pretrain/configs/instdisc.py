"""Settings of instance discrimination."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class InstDiscConfig:
    """Settings of instance discrimination; the defaults are the paper's for ImageNet-1k."""

    num_images: int = 1_281_167
    """Rows of the bank: as many as --data holds images."""
    num_negatives: int = 4096
    """m, rows of the bank that are drawn for each image. 0: no draw; the loss is the softmax over
    all rows, as in the released code."""
    temperature: float = 0.07
    """Tau, divides cosine similarities."""
    bank_momentum: float = 0.5
    """Share of its past that a row of the bank keeps; the released code's, the paper has 0."""
    proximal_weight: float = 0.0
    """Lambda of eq. 10, which pulls an embedding to its own row; the released code has 0."""
    embedding_dim: int = 128
    """d."""
