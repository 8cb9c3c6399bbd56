"""Settings of SwAV."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class SwAVConfig:
    """Settings of SwAV; the defaults are the paper's for 800 epochs of ImageNet-1k."""

    temperature: float = 0.1
    """Tau, divides the cosines of embeddings and prototypes."""
    epsilon: float = 0.05
    """Epsilon, weight of the codes' entropy."""
    sinkhorn_iterations: int = 3
    """Iterations of eq. 5 per step."""
    num_prototypes: int = 3000
    """K, prototypes."""
    prototypes_from: float = 1 / 800
    """Share of the run before which the prototypes stay as they are: one epoch."""
    queue_size: int = 0
    """Embeddings of past steps, for each assigned view and over all processes, that get codes as
    well; 0: none. Small batches need them, so that embeddings outnumber prototypes."""
    queue_from: float = 0.0
    """Share of the run after which the queue starts to fill; it takes part when it is full."""
    num_assigned_views: int = 2
    """A, number of large views, the first ones, that get codes."""
    num_large_views: int = 2
    """Views of the recipe's large size."""
    num_small_views: int = 6
    """Views of the small size, which get no codes."""
    hidden_dim: int = 2048
    """Width of the projector's hidden layer."""
    embedding_dim: int = 128
    """d."""
    sync_bn: ClassVar[bool] = True
    """Batch norm is over the images of all processes."""
