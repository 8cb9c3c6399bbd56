"""What is wrong with the data folder is said before any file is opened."""

from pathlib import Path

import pytest

from benchmarks.planning.cells import require_data_folder
from transfer.datasets.expected import DataError
from transfer.datasets.synthetic.generate import generate

KEYS = ("cifar10", "voc07")


def test_a_folder_that_cannot_hold_data_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name, words in (("none", "no such"), ("file", "is a file"), ("empty", "is empty")):
        with pytest.raises(DataError, match=rf"--data .*{name}.*{words}"):
            require_data_folder(tmp_path / name, KEYS)
    for name in ("none", "empty"):  # a plan tells how to get the data
        require_data_folder(tmp_path / name, KEYS, may_be_empty=True)


def test_a_set_in_another_place_or_without_its_parts_is_named(tmp_path: Path) -> None:
    generate(tmp_path, keys=KEYS)
    (tmp_path / "small-data.json").unlink()  # now they could be the whole sets
    require_data_folder(tmp_path, KEYS)
    moved, batch = tmp_path / "voc", tmp_path / "cifar-10-batches-py" / "data_batch_3"
    (tmp_path / "VOCdevkit").rename(moved)
    batch.rename(batch.with_name("elsewhere"))
    with pytest.raises(DataError, match=r"VOC2007 is expected at .*VOCdevkit.*lacks data_batch_3;"):
        require_data_folder(tmp_path, KEYS)
