"""A cell on data of its own, which a test may change."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from transfer.cells.cell import Cell
from transfer.cells.request import Settings
from transfer.encoders.encoder import Encoder


@pytest.fixture
def own_cell(small_backbone: Encoder, settings: Settings, tmp_path: Path) -> Cell:
    """Nearest neighbors on a copy of a set.

    Beside it "original" leads to what was copied.
    """
    data = tmp_path / "data"
    shutil.copytree(settings.data / "stanford_cars", data / "stanford_cars")
    shutil.copy(settings.data / "small-data.json", data)
    (tmp_path / "original").symlink_to(settings.data)
    settings = replace(settings, data=data)
    return Cell.with_backbone(task="cars_knn", backbone=small_backbone, seed=0, settings=settings)
