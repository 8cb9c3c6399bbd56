"""Problems of the data folder are reported before files are opened."""

from pathlib import Path

import pytest

from benchmarks.planning.cells import require_data_folder
from transfer.datasets.expected import DataError


def test_a_folder_that_cannot_hold_data_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name, args in (("none", "no such"), ("file", "not a folder"), ("empty", "is empty")):
        with pytest.raises(DataError, match=rf"--data .*{name}.*{args}"):
            require_data_folder(tmp_path / name)
    for name in ("none", "empty"):  # a plan tells how to get the data
        require_data_folder(tmp_path / name, may_be_empty=True)
