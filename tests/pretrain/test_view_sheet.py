"""The sheet of a run's first views."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from pretrain.metrics import write_view_sheet

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.1)


def test_a_row_shows_the_views_of_one_image_whatever_their_sizes(tmp_path: Path) -> None:
    bright, dark = torch.full((9, 3, 16, 16), 9.0), torch.full((9, 3, 8, 8), -9.0)
    write_view_sheet(tmp_path, [bright, dark], MEAN, STD)
    with Image.open(tmp_path / "views.jpg") as sheet:
        pixels = np.asarray(sheet)
    assert pixels.shape == (6 * 100 - 4, 2 * 100 - 4, 3)
    assert pixels[:90, :90].min() > 250
    assert pixels[500:590, 110:190].max() < 5
