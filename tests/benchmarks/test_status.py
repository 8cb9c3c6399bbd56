"""The states of submitted cells, for all results or for one folder of them."""

import json
from pathlib import Path

import pytest

from benchmarks.cluster.submission import Submission, SubmittedCell
from benchmarks.status import main
from slurm.resources import Queue, Resources
from transfer.record import failure_path


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two submissions: the cell of `good` has a record, the cell of `bad` a failure file."""
    monkeypatch.setenv("PATH", str(tmp_path))  # no Slurm: files alone decide
    for name in ("good", "bad"):
        record = tmp_path / name / "records" / "mine" / f"{name}.json"
        record.parent.mkdir(parents=True)
        folder = tmp_path / "runs" / "slurm" / name
        folder.mkdir(parents=True)
        cell = SubmittedCell(
            job="1_0",
            backbone=name,
            key="cifar10_knn",
            protocol="uniclr-2022/1",
            schedule="paper",
            seed=0,
            record=str(record),
            before=(0, 0),
            words=(),
            resources=Resources(),
        )
        Submission(
            folder=folder,
            results=str(tmp_path / name),
            parallel=0,
            queue=Queue(),
            cells=(cell,),
            helpers=(),
        ).save()
    (tmp_path / "good" / "records" / "mine" / "good.json").write_text("{}")
    failure = failure_path(tmp_path / "bad" / "records" / "mine" / "bad.json")
    failure.write_text(json.dumps({"reason": "DataError: no folder cifar10"}))
    return tmp_path / "runs"


def test_a_failed_cell_is_shown_with_its_reason_and_sets_the_status(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--runs", str(runs)]) == 1
    text = capsys.readouterr().out
    assert "DataError: no folder cifar10" in text
    assert "1 done, 1 failed" in text


def test_a_folder_of_results_has_its_own_cells_only(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--runs", str(runs), "--results", str(runs.parent / "good")]) == 0
    text = capsys.readouterr().out
    assert "1 done" in text
    assert "failed" not in text
