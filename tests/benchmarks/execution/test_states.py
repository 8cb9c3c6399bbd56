"""States of cells on this machine, from their state files."""

import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from benchmarks.execution.states import CellState, all_states, earlier_work, is_over, status_page
from pretrain.running.stop import Stopped
from tests.benchmarks.conftest import stored_state
from transfer.cells import state
from transfer.cells.cell import Cell
from transfer.cells.execution import evaluate
from transfer.cells.request import Request, Settings, from_json
from transfer.cells.state import STOPPED
from transfer.encoders.encoder import Encoder
from transfer.record import state_path, write_json


@pytest.fixture
def cell(small_backbone: Encoder, settings: Settings) -> Cell:
    cell = Cell.with_backbone(
        task="cifar10_knn", backbone=small_backbone, seed=0, settings=settings
    )
    state.write(cell, "queued")
    return cell


def shown(cell: Cell) -> tuple[str, str]:
    ((result,), _) = all_states(cell.settings.results)
    assert result.identity == (cell.backbone.name, cell.key, 0)
    return result.name, result.detail


def change(cell: Cell, **changes: object) -> Path:
    file = state_path(cell.path)
    stored = state.read_state(file)
    assert stored is not None
    write_json(file, stored.content | changes)
    return file


def test_a_cell_waits_runs_and_is_done(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(cell) == ("queued", "")
    with state.reporting(cell):
        assert shown(cell) == ("running", "starts")
    assert shown(cell) == ("done", "")
    assert is_over(all_states(cell.settings.results)[0])
    for error, expected in ((OSError("no disk"), "failed"), (Stopped(75), "stopped")):
        monkeypatch.setattr("transfer.cells.execution._compute", Mock(side_effect=error))
        with pytest.raises(type(error)):
            evaluate(cell)
        assert shown(cell) == (expected, "OSError: no disk" if expected == "failed" else STOPPED)
    monkeypatch.undo()
    evaluate(cell)
    assert shown(cell)[0] == "done"


def test_state_stores_the_request(cell: Cell) -> None:
    stored = state.read_state(state_path(cell.path))
    assert stored is not None
    assert from_json(Request, stored.content["request"]) == cell.request.absolute()


def test_finished_cell_whose_process_was_killed_before_it_said_so_is_done(cell: Cell) -> None:
    evaluate(cell)
    change(cell, state="running", pid=2**22 + 1)
    assert shown(cell)[0] == "stopped"
    evaluate(cell)
    assert shown(cell)[0] == "done"


def test_killed_process_is_stopped_also_as_a_zombie(cell: Cell) -> None:
    change(cell, state="running", pid=2**22 + 1)
    assert shown(cell)[0] == "stopped"
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    change(cell, state="running", pid=child)
    assert shown(cell)[0] == "stopped"
    os.waitpid(child, 0)


def test_process_of_another_machine_ends_by_silence(cell: Cell) -> None:
    file = change(cell, host="other")
    assert shown(cell)[0] == "queued"
    os.utime(file, (1e9, 1e9))
    assert shown(cell)[0] == "stopped"


def test_waiting_cell_of_another_machine_is_queued_while_its_process_writes(cell: Cell) -> None:
    os.utime(change(cell, host="other"), (1e9, 1e9))
    second = cell.with_request(seed=1)
    state.write(second, "running")
    change(second, host="other")
    names = [item.name for item in state.read_states(cell.settings.results)]
    assert names == ["queued", "running"]


def test_process_with_the_number_of_an_ended_one_does_not_run_its_cells(cell: Cell) -> None:
    change(cell, state="running", started="1")
    assert shown(cell)[0] == "stopped"


@pytest.mark.parametrize("content", ["", "[1]", '{"format": "other"}'])
def test_truncated_and_foreign_files_are_no_states(cell: Cell, content: str) -> None:
    state_path(cell.path).write_text(content)
    assert all_states(cell.settings.results) == ([], "")


def test_states_are_found_through_links(cell: Cell, tmp_path: Path) -> None:
    records = cell.settings.results / "records"
    records.rename(tmp_path / "other disk")
    records.symlink_to(tmp_path / "other disk")
    assert shown(cell)[0] == "queued"


def test_the_page_shows_hostile_names_as_text() -> None:
    page = status_page([CellState(stored_state("<img src=x>"), "failed", "a <b> & c")])
    assert "<img src=x>" not in page
    assert "&lt;img src=x&gt;" in page
    assert "a &lt;b&gt; &amp; c" in page
    assert 'http-equiv="refresh"' in page


def test_work_of_an_earlier_version_is_one_line(tmp_path: Path) -> None:
    assert earlier_work(tmp_path) == ""
    for name in ("local/a.json", "slurm/1/submission.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    line = earlier_work(tmp_path)
    assert f"delete {tmp_path}/local, {tmp_path}/slurm/1" in line
