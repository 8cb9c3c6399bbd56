"""States of the cells of a run on this machine, from their files."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from benchmarks.execution.states import (
    FOLDER,
    CellState,
    is_over,
    local_states,
    status_page,
    write_run_file,
)
from pretrain.running.console import PROGRESS_FILE, progress_file
from tests.benchmarks.conftest import started
from transfer.cells.cell import Cell
from transfer.cells.execution import evaluate
from transfer.cells.request import Settings
from transfer.encoders.encoder import Encoder


@pytest.fixture
def cell(small_backbone: Encoder, settings: Settings) -> Cell:
    cell = Cell.with_backbone(
        task="cifar10_knn", backbone=small_backbone, seed=0, settings=settings
    )
    write_run_file([cell], settings.runs)
    return cell


def state(cell: Cell) -> tuple[str, str]:
    (one,) = local_states(cell.settings.runs)
    assert one.cell.names == (cell.backbone.name, cell.key, 0)
    return one.state, one.detail


def change(cell: Cell, **changes: Any) -> None:
    (path,) = (cell.settings.runs / FOLDER).glob("*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_cell_waits_runs_and_ends_by_a_record_written_since_the_start(cell: Cell) -> None:
    assert state(cell) == ("queued", "")
    with progress_file(cell.folders.work / PROGRESS_FILE):
        assert state(cell) == ("running", "starts")
    assert state(cell)[0] == "queued"
    evaluate(cell)
    assert state(cell) == ("done", "")
    assert is_over(local_states(cell.settings.runs))
    write_run_file([cell], cell.settings.runs)
    assert state(cell)[0] == "queued"


def test_every_path_of_a_folder_of_results_selects_its_runs(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, results = cell.settings.runs, cell.settings.results
    link = tmp_path / "link"
    link.symlink_to(results)
    results.mkdir(exist_ok=True)
    monkeypatch.chdir(results)
    paths = (results, link, Path("..") / results.name, tmp_path / "others")
    assert [len(local_states(runs, path)) for path in paths] == [1, 1, 1, 0]


def test_a_killed_run_is_not_taken_for_a_running_one(cell: Cell) -> None:
    told = {"step": "train", "host": socket.gethostname(), "pid": 2**22 + 1}
    cell.folders.work.mkdir(parents=True)
    (cell.folders.work / PROGRESS_FILE).write_text(json.dumps(told))
    change(cell, pid=2**22 + 1)
    assert state(cell) == ("stopped", "its run has ended; the same command continues")
    write_run_file([cell], cell.settings.runs)  # in place of the file of the ended run
    assert len(list((cell.settings.runs / FOLDER).glob("*.json"))) == 1


def test_the_page_shows_hostile_names_as_text() -> None:
    cell = started("<img src=x>")
    page = status_page([CellState(cell, "failed", "a <b> & c")])
    assert "<img src=x>" not in page
    assert "&lt;img src=x&gt;" in page
    assert "a &lt;b&gt; &amp; c" in page
    assert 'http-equiv="refresh"' in page


def test_a_run_of_another_machine_ends_by_silence_and_keeps_its_file(cell: Cell) -> None:
    change(cell, host="other")
    assert state(cell)[0] == "queued"
    (path,) = (cell.settings.runs / FOLDER).glob("*.json")
    os.utime(path, (1e9, 1e9))
    assert state(cell)[0] == "stopped"
    progress = cell.folders.work / PROGRESS_FILE
    progress.parent.mkdir(parents=True)
    progress.write_text(json.dumps({"host": "other", "pid": 1}))
    assert state(cell)[0] == "running"
    os.utime(progress, (1e9, 1e9))  # its node was killed
    assert state(cell)[0] == "stopped"
    progress.unlink()
    path.rename(path.with_name("other.json"))
    write_run_file([cell], cell.settings.runs)
    first, second = (cell.settings.runs / FOLDER).glob("*.json")
    for content in ("", "[1]", '{"format": "other"}'):  # torn and foreign files are no runs
        first.write_text(content)
        second.write_text(content)
        assert local_states(cell.settings.runs) == []
