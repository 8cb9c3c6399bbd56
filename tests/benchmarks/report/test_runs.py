"""Which logs of pre-training runs the report draws."""

import json
from pathlib import Path

import pytest

from benchmarks.report import main, update_report
from benchmarks.results.published import transfer_tasks
from tests.benchmarks.drawing.figure_records import training_log
from tests.benchmarks.report.complete_records import complete

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


def test_given_runs_are_drawn(results: Path, tmp_path: Path) -> None:
    run = run_folder(tmp_path / "jcl-run")
    assert main(["--results", str(results), "--runs", str(run)]) == 0
    assert "jcl-run" in page(results)


def test_stored_log_of_a_drawn_run_is_not_repeated(results: Path, tmp_path: Path) -> None:
    run = run_folder(tmp_path / "jcl-run")
    training_log(results, "jcl-run", "moco/small", {"loss": [3.0, 2.0]})
    assert update_report(results)
    assert page(results).count("jcl-run</b>: step 2") == 1
    assert main(["--results", str(results), "--runs", str(run)]) == 0
    assert page(results).count("jcl-run</b>: step 2") == 1


@pytest.mark.parametrize("file", ["backbone.pt", "snapshots/epoch0001.pt"])
def test_run_of_an_evaluated_checkpoint_is_drawn(results: Path, tmp_path: Path, file: str) -> None:
    run = run_folder(tmp_path / "jcl-run")
    task = transfer_tasks()[1]
    request = {"task": task, "backbone": ["--ckpt", str(run / file)], "options": [], "input": {}}
    complete(results, "other", task, request=request)
    assert update_report(results)
    assert "jcl-run</b>: step 2" in page(results)
