"""A sheet of the first views of a run, so that a person can see what the network is trained on."""

import io
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

FILE = "views.jpg"
NUM_IMAGES, MOST_VIEWS = 6, 10
SIDE_PX, GAP_PX = 96, 4


def write_view_sheet(
    folder: Path, views: Sequence[Tensor], mean: Sequence[float], std: Sequence[float]
) -> None:
    """Write a row per image and a column per view, if that is possible.

    views: V of (n, 3, S, S), normalized by mean and std; only the first few are drawn.
    """
    shown = [view[:NUM_IMAGES].float().cpu() for view in views[:MOST_VIEWS]]
    num_rows, pitch = len(shown[0]), SIDE_PX + GAP_PX
    sheet = Image.new("RGB", (pitch * len(shown) - GAP_PX, pitch * num_rows - GAP_PX), "white")
    for column, view in enumerate(shown):
        for row, pixels in enumerate(levels(view, mean, std)):
            small = Image.fromarray(pixels).resize((SIDE_PX, SIDE_PX), Image.Resampling.BILINEAR)
            sheet.paste(small, (pitch * column, pitch * row))
    buffer = io.BytesIO()
    sheet.save(buffer, "JPEG", quality=80)
    unfinished = folder / f"{FILE}.unfinished"
    with suppress(OSError):  # a picture must not stop a run
        unfinished.write_bytes(buffer.getvalue())
        unfinished.replace(folder / FILE)


def levels(views: Tensor, mean: Sequence[float], std: Sequence[float]) -> NDArray[np.uint8]:
    """Return normalized views (n, 3, S, S) as levels of colors (n, S, S, 3) uint8."""
    scale, shift = (torch.tensor(values).view(3, 1, 1) for values in (std, mean))
    colors = (views * scale + shift).clamp(0, 1)
    return (255 * colors).round().byte().permute(0, 2, 3, 1).numpy()
