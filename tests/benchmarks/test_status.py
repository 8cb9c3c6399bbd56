"""The live view of a run."""

import signal
from pathlib import Path
from typing import cast

import pytest

from benchmarks.execution import states as watching
from benchmarks.execution.ending import write_requested
from benchmarks.execution.states import (
    STATUS_PAGE,
    CellState,
    States,
    all_states,
    print_states,
    render_states,
    watch,
)
from benchmarks.run_all import main
from tests.benchmarks.conftest import Rows, stored_state
from transfer.cells import state
from transfer.cells.request import Settings
from transfer.cells.state import StateName


def cells(*names: StateName) -> States:
    return [CellState(stored_state("mine"), name) for name in names]


def test_it_ends_when_no_cell_runs_or_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = iter([cells("queued", "running"), cells("queued", "running"), cells("running", "done")])
    last = cells("done", "failed")
    monkeypatch.setattr(watching, "all_states", lambda *_: (next(steps, last), ""))
    assert watch(tmp_path, tmp_path, interval_s=0.0) == 1
    output = capsys.readouterr()
    assert [line[10:] for line in output.err.splitlines()] == [
        "1 running, 1 queued",
        "1 running, 1 done",
    ]
    assert output.out.splitlines()[-1] == "1 failed, 1 done"
    assert "1 failed, 1 done" in (tmp_path / STATUS_PAGE).read_text()


def test_a_folder_that_cannot_be_written_can_be_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "all_states", lambda *_: (cells("done"), ""))
    (tmp_path / STATUS_PAGE).mkdir()
    assert watch(tmp_path, tmp_path) == 0


def test_columns_of_the_states_are_separate(rows: Rows, settings: Settings) -> None:
    planned = rows("cifar10_view_statistics@feature")
    write_requested(planned, named=True, is_local=True)
    line = render_states(all_states(settings.results)[0]).splitlines()[1]
    assert line.split()[1:3] == ["cifar10_view_statistics@feature", "0"]


def test_stopped_cells_of_earlier_runs_are_shown(
    rows: Rows, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    for task, name in (("cifar10_knn", "stopped"), ("in100_knn", "done")):
        planned = rows(task)
        write_requested(planned, named=True, is_local=True)
        state.write(planned[0].cell, cast("StateName", name))
    assert print_states(settings.results, settings.runs) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1:4] for line in lines[1:3]] == [
        ["cifar10_knn", "0", "stopped"],
        ["in100_knn", "0", "done"],
    ]


def test_ctrl_c_ends_the_view_of_run_all_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter([cells("running")])
    monkeypatch.setattr(watching, "all_states", lambda *_: (next(steps, cells("failed")), ""))
    monkeypatch.setattr("time.sleep", lambda _: signal.raise_signal(signal.SIGINT))
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["--status", "--watch", "--runs", str(tmp_path)]) == 0
    finally:
        signal.signal(signal.SIGINT, previous)
