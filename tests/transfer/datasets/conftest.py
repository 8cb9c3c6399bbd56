"""One generated tree for all tests of the room; a test that changes it takes a copy of one set."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from transfer.datasets.catalog import dataset_info
from transfer.datasets.expected import SMALL_DATA
from transfer.datasets.synthetic.generate import generate


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every layout, small. Only to be read."""
    data = tmp_path_factory.mktemp("small-data")
    generate(data)
    return data


@pytest.fixture
def copy_of(small_data: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Copies one set into a data folder of its own, which the test may damage."""

    def copy(key: str) -> Path:
        info = dataset_info(key)
        for folder in filter(None, (info.folder, info.second_folder)):
            shutil.copytree(small_data / folder, tmp_path / folder)
        shutil.copy(small_data / SMALL_DATA, tmp_path / SMALL_DATA)
        return tmp_path

    return copy
