"""A test that changes generated data takes a copy of one set."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from transfer.datasets.catalog import dataset_info
from transfer.datasets.expected import SMALL_DATA, small_sizes

CopyOf = Callable[[str], Path]


@pytest.fixture
def copy_of(small_data: Path, tmp_path: Path) -> CopyOf:
    """Copy a dataset into a folder that the test may damage."""

    def copy(key: str) -> Path:
        info = dataset_info(key)
        for folder in filter(None, (info.folder, info.second_folder)):
            shutil.copytree(small_data / folder, tmp_path / folder)
        shutil.copy(small_data / SMALL_DATA, tmp_path / SMALL_DATA)
        return tmp_path

    return copy


def real_data(key: str) -> Path:
    """Return the folder with a published set; skip the test without one."""
    data = Path(os.environ["DATASETS"])
    sampled = getattr(small_sizes(data).get(key), "drawn", False)
    if sampled or not dataset_info(key).exists_in(data):
        pytest.skip(f"{data} holds no published {key}")
    return data
