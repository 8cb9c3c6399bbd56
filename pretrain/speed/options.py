"""Options of the benchmarks of pre-training."""

from dataclasses import dataclass
from pathlib import Path

from pretrain.command import DeviceChoice
from pretrain.precision import Precision


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Measure the speed of pre-training."""

    recipe: str = "jcl/cifar10-cpu"
    data: Path | None = None
    """Folder of training images."""
    photographs: Path | None = None
    """Folder of large images, for the views."""
    device: DeviceChoice = "auto"
    precision: Precision = "auto"
    batch_size: int = 64
    num_steps: int = 10
    """Training steps that are timed, after two of warm-up."""
    num_rounds: int = 5
    """Rounds of each ratio; medians are reported."""
    num_queries: int = 512
    """N, queries of the losses."""
    queue_size: int = 65_536
    """K, keys in the queue of the losses."""
    embedding_dim: int = 2048
    """Embedding dimension of SimTrace."""
