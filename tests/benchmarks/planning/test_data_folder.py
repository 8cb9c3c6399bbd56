"""What is wrong with the data folder is said before any file is opened."""

from pathlib import Path

import pytest

from benchmarks.planning.cells import require_data_folder
from transfer.datasets.check import announce, check
from transfer.datasets.expected import DataError
from transfer.datasets.synthetic.generate import generate

KEYS = ("cifar10", "voc07")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated sets, without the file that says so."""
    data = tmp_path_factory.mktemp("data")
    generate(data, keys=KEYS)
    (data / "small-data.json").unlink()
    return data


def test_a_folder_that_cannot_hold_data_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name, words in (("none", "no such"), ("file", "is a file"), ("empty", "is empty")):
        with pytest.raises(DataError, match=rf"--data .*{name}.*{words}"):
            require_data_folder(tmp_path / name, KEYS)


def test_a_set_in_another_place_or_without_its_parts_is_named(small: Path) -> None:
    require_data_folder(small, KEYS)
    moved, batch = small / "voc", small / "cifar-10-batches-py" / "data_batch_3"
    (small / "VOCdevkit").rename(moved)
    batch.rename(batch.with_name("elsewhere"))
    with pytest.raises(DataError, match=r"VOC2007 is expected at .*VOCdevkit.*lacks data_batch_3;"):
        require_data_folder(small, KEYS)
    moved.rename(small / "VOCdevkit")
    batch.with_name("elsewhere").rename(batch)


def test_an_excerpt_is_announced_as_what_it_holds(small: Path) -> None:
    for key in KEYS:
        sizes = announce(key, small)
        assert sizes.counts["train"] + sizes.counts["val"] == sizes.counts["trainval"]
        report = check(key, small, decode=False)
        assert (report.problems, report.small) == ((), "excerpt")
    (small / "small-data.json").unlink()
