"""Limits of GPUs: the bf16 peak, and the least time of a view on an H200.

Peaks are those of the makers' data sheets, dense, with sums in float32.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

BF16_TFLOPS: Mapping[str, float] = {
    "B200": 2250,
    "H200": 989,
    "GH200": 989,
    "H100 PCIe": 756,
    "H100": 989,
    "L40S": 362,
    "A100": 312,
    "A30": 165,
    "A40": 150,
    "RTX 4090": 165,
    "L4": 121,
    "RTX 3090": 71,
}
"""Words of a GPU's name -> TFLOP/s; of two that fit, the first counts."""
NATIVE_PX = 224


def bf16_peak(name: str) -> float | None:
    """Return the TFLOP/s of a GPU by its name, such as "NVIDIA A100-SXM4-80GB"; None: unknown."""
    words = set(re.split(r"[ -]", name))
    for known, peak in BF16_TFLOPS.items():
        if set(known.split()) <= words:
            return peak
    return None


@dataclass(frozen=True)
class Floor:
    """Least microseconds of one 224 px view of ResNet-50 in bf16 on an H200.

    The sum over layers of the larger of FLOPs / 790 TFLOP/s and bytes / 4.3 TB/s, plus the passes
    of batch norm over memory: one for statistics and one to apply them, or none at best, where
    convolutions do both.
    """

    train_us: float
    key_us: float
    """Forward pass without gradient, with the statistics of the batch."""

    def seconds(self, trained: float, keys: float) -> float:
        """Return the seconds of that many views of 224 px."""
        return 1e-6 * (trained * self.train_us + keys * self.key_us)


FUSED = Floor(train_us=83.4, key_us=29.5)
BEST = Floor(train_us=57.6, key_us=14.0)


def has_floor(name: str, arch: str) -> bool:
    """Return whether the floor holds: it was derived for one GPU and one network."""
    return "H200" in re.split(r"[ -]", name) and arch == "resnet50"
