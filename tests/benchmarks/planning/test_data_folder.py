"""Problems of the data folder are reported before files are opened."""

from pathlib import Path

import pytest

from benchmarks.planning.cells import require_data_folder
from transfer.datasets.expected import DataError
from transfer.datasets.synthetic.generate import generate

KEYS = ("cifar10", "voc07")


def test_a_folder_that_cannot_hold_data_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name, args in (("none", "no such"), ("file", "not a folder"), ("empty", "is empty")):
        with pytest.raises(DataError, match=rf"--data .*{name}.*{args}"):
            require_data_folder(tmp_path / name, KEYS)
    for name in ("none", "empty"):  # a plan tells how to get the data
        require_data_folder(tmp_path / name, KEYS, may_be_empty=True)


def test_voc_outside_of_vocdevkit_is_named(tmp_path: Path) -> None:
    generate(tmp_path, keys=KEYS)
    require_data_folder(tmp_path, KEYS)
    (tmp_path / "VOCdevkit").rename(tmp_path / "voc")
    with pytest.raises(DataError, match=r"VOC2007 must be at .*VOCdevkit"):
        require_data_folder(tmp_path, KEYS)
