"""make-corruptions with noise in place of its package: python -m tests.campaign.corruptions DATA.

The package is an extra that few machines have. Noise from a seeded generator stands in for it, on
small crops; everything else is the command's own code.
"""

import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from pretrain.running import stop
from transfer.__main__ import main
from transfer.datasets.imagenet.imagenet_c import SEVERITIES

MODULE = "transfer.datasets.imagenet.make_corruptions"
KINDS = ("snow", "fog", "contrast")
SIDE_PX = 24


class Noise:
    """Noise from torch's and from a NumPy generator; the package's corruptions use either."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng()

    def __call__(self, pixels: Tensor) -> Tensor:
        drawn = torch.from_numpy(self.rng.normal(0, 0.1, size=tuple(pixels.shape)))
        return pixels + drawn + 0.1 * torch.randn(pixels.shape)


def make(words: list[str]) -> int:
    """Run make-corruptions on small crops; return its exit status."""
    noise = {(kind, severity): Noise() for kind in KINDS for severity in SEVERITIES}
    with (
        patch(f"{MODULE}.RESIZE_PX", SIDE_PX),
        patch(f"{MODULE}.CROP_PX", SIDE_PX),
        patch(f"{MODULE}.version", lambda package: "0.13"),
        patch(f"{MODULE}.package_corruptions", lambda: noise),
    ):
        return main(["make-corruptions", "--workers", "2", "--data", str(Path(words[0]))])


if __name__ == "__main__":
    sys.exit(stop.exit_status(make, sys.argv[1:]))
