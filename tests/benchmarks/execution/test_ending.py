"""Progress of a run, its summary, and results on Weights & Biases."""

import json
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from benchmarks.execution import ending
from benchmarks.execution.ending import finish_run
from benchmarks.planning.options import RunAll
from benchmarks.results.published import transfer_tasks
from benchmarks.results.records import read_results
from tests.benchmarks.conftest import Rows
from tests.synthetic_records import failure, record
from transfer.cells.request import Settings

REASON = " ".join(["a long reason"] * 22)
COLUMNS = 80


def test_the_whole_end_fits_60_lines_of_80_columns(
    rows: Rows,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    results = Path("results")
    names = [f"checkpoint-{number}" for number in range(5)]
    planned = rows(*transfer_tasks(), names=tuple(names), schedule="paper")
    for number, name in enumerate(names):
        for task in transfer_tasks():
            changes = {"backbone": name, "sha256": f"{number:064d}", "task": task}
            record(results, 40.0, protocol="lorac-2021/1", **changes)
    for seed in range(10):
        failure(results, transfer_tasks()[0], REASON, seed=seed)
    planned += rows(transfer_tasks()[0], names=("mine",), seeds=10, schedule="paper")
    succeeded = read_results(results).succeeded
    result = {(run.backbone.name, run.task): run.record for run in succeeded}
    monkeypatch.setattr(ending, "finished", lambda cell: result.get((cell.backbone.name, cell.key)))
    request = RunAll(settings=Settings(results=results, runs=tmp_path / "runs"))
    assert finish_run(planned, request, time.monotonic(), {"torn": REASON}) == 1
    printed = capsys.readouterr()
    lines = (printed.out + printed.err).splitlines()
    assert sum(-(-max(len(line), 1) // COLUMNS) for line in lines) <= 60
    assert any(line.startswith("report ") for line in lines)
    assert any(" 40.0 " in line for line in lines)
    assert sum(line.startswith("failed  ") for line in lines) == 8
    assert "... and 3 more failures in tables/" in lines
    assert lines[-1].startswith("70 evaluations, 10 failed, 1 checkpoint could not be read")
    assert REASON in (results / "report" / "index.html").read_text()  # all of it
    (path, *_) = sorted((results / "records" / "mine").rglob("*.state.json"))
    assert json.loads(path.read_text())["reason"] == REASON


def test_last_line_counts_cells_that_could_not_run(
    rows: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    completed, unsupported, absent = rows("cifar10_knn", "in100_knn", "voc07_svm")
    planned = [
        replace(completed, state="unsupported"),
        replace(unsupported, state="unsupported"),
        replace(absent, state="missing data", missing=("voc07",)),
    ]
    request = RunAll(settings=completed.cell.settings)
    finish_run(planned, request, time.monotonic(), {})
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("3 evaluations, 0 failed, 2 unsupported, 1 with missing data, ")


@pytest.mark.parametrize(
    ("step", "outcome", "status"),
    [
        ("benchmarks.tables.results_csv", "the tables are not up to date", 1),
        ("benchmarks.figures.draw_figures", "the figures are not up to date", 0),
        ("benchmarks.execution.ending.final_screen", "the summary is missing", 1),
        ("benchmarks.report.report_page", "the report was not written", 1),
    ],
)
def test_fault_in_one_step_of_the_end_leaves_the_others(
    rows: Rows,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    outcome: str,
    status: int,
) -> None:
    record(tmp_path / "results", 79.7)
    monkeypatch.setattr(step, MagicMock(side_effect=ZeroDivisionError("division by zero")))
    request = RunAll(settings=Settings(results=tmp_path / "results", runs=tmp_path / "runs"))
    planned = rows("voc07_svm", names=("mine",), schedule="paper")
    (result,) = read_results(tmp_path / "results").succeeded
    monkeypatch.setattr(ending, "finished", lambda cell: result.record)
    assert finish_run(planned, request, time.monotonic(), {}) == status
    printed = capsys.readouterr()
    (line,) = [line for line in printed.err.splitlines() if outcome in line]
    assert "ZeroDivisionError: division by zero; the records are safe" in line
    assert "Traceback (most recent call last)" in printed.err
    written = [(tmp_path / "results" / name).exists() for name in ("tables", "report")]
    assert written == ["tables" not in outcome, "report" not in outcome]
