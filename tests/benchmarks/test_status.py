"""The live view of a run."""

import signal
from pathlib import Path

import pytest

from benchmarks import status as watching
from benchmarks.execution.states import STATUS_PAGE, CellState, States
from benchmarks.run_all import main
from benchmarks.status import watch
from tests.benchmarks.conftest import stored_state
from transfer.cells.state import StateName


def rows(*names: StateName) -> States:
    return [CellState(stored_state("mine"), name) for name in names]


def test_it_ends_when_no_cell_runs_or_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = iter([rows("queued", "running"), rows("queued", "running"), rows("running", "done")])
    last = rows("done", "failed")
    monkeypatch.setattr(watching, "all_states", lambda *_: (next(steps, last), ""))
    assert watch(tmp_path, tmp_path, interval_s=0.0) == 1
    told = capsys.readouterr()
    assert [line[10:] for line in told.err.splitlines()] == [
        "1 running, 1 queued",
        "1 running, 1 done",
    ]
    assert told.out.splitlines()[-1] == "1 failed, 1 done"
    assert "1 failed, 1 done" in (tmp_path / STATUS_PAGE).read_text()


def test_a_folder_that_cannot_be_written_can_be_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "all_states", lambda *_: (rows("done"), ""))
    (tmp_path / STATUS_PAGE).mkdir()
    assert watch(tmp_path, tmp_path) == 0


def test_ctrl_c_ends_the_view_of_run_all_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter([rows("running")])
    monkeypatch.setattr(watching, "all_states", lambda *_: (next(steps, rows("failed")), ""))
    monkeypatch.setattr("time.sleep", lambda _: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["--status", "--watch", "--runs", str(tmp_path)]) == 0
    finally:
        signal.signal(signal.SIGINT, before)
