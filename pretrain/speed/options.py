"""Options of the benchmark of pre-training, and the ranges of the benchmarks' numeric options."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pretrain.command import DeviceChoice
from pretrain.precision import Precision
from pretrain.ranges import DIMENSION, POSITIVE_COUNT, RANGES, Range

BATCH = RANGES["batch_size"]
SPEED_RANGES: Mapping[str, Range] = {
    "batch_size": BATCH,
    "embedding_dim": DIMENSION,
    "num_images": POSITIVE_COUNT,
    "num_queries": BATCH,
    "num_rounds": POSITIVE_COUNT,
    "num_steps": POSITIVE_COUNT,
    "queue_size": Range(1, 2**27),
    "rounds": POSITIVE_COUNT,
}
"""Range of every numeric option of the benchmarks, by the name of its field."""


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
