"""Logs of pre-training find their way to pages that are written automatically."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.execution.ending import finish_run
from benchmarks.planning.options import RunAll
from benchmarks.report import main, update_report
from benchmarks.report_parts.pretraining import runs_of_files
from benchmarks.results.published import transfer_tasks
from tests.benchmarks.drawing.figure_records import training_log
from tests.benchmarks.report.complete_records import complete
from transfer.cells.request import Settings

LINES = [{"step": i, "epoch": 5 * i, "loss": 4.0 - i} for i in (1, 2)]


def run_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    text = "".join(json.dumps(line) + "\n" for line in LINES)
    (folder / "metrics.jsonl").write_text(text)
    return folder


def page(results: Path) -> str:
    return (results / "report" / "index.html").read_text()


@pytest.fixture
def results(tmp_path: Path) -> Path:
    complete(tmp_path / "results", "mine", transfer_tasks()[0])
    return tmp_path / "results"


def test_the_next_page_keeps_the_runs_that_were_given(results: Path, tmp_path: Path) -> None:
    run = run_folder(tmp_path / "jcl-run")
    gone = run_folder(tmp_path / "gone-run")
    assert main(["--results", str(results), "--runs", str(run), str(gone)]) == 0
    (gone / "metrics.jsonl").unlink()
    assert update_report(results)
    assert "jcl-run" in page(results)
    assert "gone-run" not in page(results)
    assert json.loads((results / "report" / "runs.json").read_text()) == [str(run), str(gone)]


def test_logs_kept_below_the_results_are_shown_once(results: Path, tmp_path: Path) -> None:
    run = run_folder(tmp_path / "jcl-run")
    training_log(results, "kept-run", "moco/small", {"loss": [3.0, 2.0]})
    assert update_report(results)
    assert "kept-run</b>: step 2" in page(results)
    assert update_report(results, (run,))
    assert "jcl-run</b>: step 2" in page(results)
    assert "kept-run</b>" not in page(results)


def test_the_run_of_an_evaluated_checkpoint_is_shown(results: Path, tmp_path: Path) -> None:
    run = run_folder(tmp_path / "jcl-run")
    cell = SimpleNamespace(
        backbone=SimpleNamespace(name="mine"), source_file=str(run / "backbone.pt")
    )
    row: Any = SimpleNamespace(cell=cell, state="unsupported")
    request = RunAll(settings=Settings(results=results, runs=tmp_path / "runs"))
    assert finish_run([row], request, 0.0, {}) == 0
    assert "jcl-run</b>: step 2" in page(results)
    files = [run / "a.pt", run / "b.pt", run / "snapshots" / "1.pt", tmp_path / "c.pt"]
    assert runs_of_files(["", *map(str, files)]) == (run,)
