"""Four images of colored squares, whose masks are the squares."""

from pathlib import Path

import numpy as np
from PIL import Image

from transfer.datasets.segmented import Segmented, write_mask

COLORS = ((90, 90, 90), (220, 20, 60), (65, 105, 225))
"""Colors of background and two classes."""
SQUARES = (((4, 6, 36), 1), ((20, 30, 30), 2), ((10, 40, 20), 1), ((2, 2, 44), 2))
"""Top, left, side; class."""


def drawn_split(folder: Path) -> Segmented:
    """Images of 48 x 72 px."""
    for number, ((top, left, side), label) in enumerate(SQUARES):
        mask = np.zeros((48, 72), dtype=np.uint8)
        mask[top : top + side, left : left + side] = label
        write_mask(folder / f"mask{number}.png", mask)
        Image.fromarray(np.array(COLORS, dtype=np.uint8)[mask]).save(folder / f"{number}.png")
    numbers = range(len(SQUARES))
    return Segmented(
        folder,
        [f"{number}.png" for number in numbers],
        [f"mask{number}.png" for number in numbers],
        ("background", "red", "blue"),
    )
