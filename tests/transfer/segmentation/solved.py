"""Ten images with one class each, and predictions with known scores.

All predictions are right, or all are of the next class.
"""

from pathlib import Path

import numpy as np

from transfer.datasets.segmented import Segmented, write_mask
from transfer.segmentation.masks import Predicted, prediction_path


def solved_segmentation(folder: Path, *, right: bool) -> Predicted:
    """Image i shows class i of ten."""
    names = [f"{i}.jpg" for i in range(10)]
    split = Segmented(
        folder,
        names,
        [f"masks/{i}.png" for i in range(10)],
        [f"class {i}" for i in range(10)],
    )
    (folder / "masks").mkdir()
    (folder / "predictions").mkdir()
    for i in range(10):
        write_mask(folder / "masks" / f"{i}.png", np.full((6, 8), i, dtype=np.uint8))
        guess = i if right else (i + 1) % 10
        file = prediction_path(folder / "predictions", split, i)
        write_mask(file, np.full((6, 8), guess, dtype=np.uint8))
    return Predicted(folder / "predictions", split)
