"""Snapshots become a table and a CSV file per curve."""

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.execution.ending import write_requested
from benchmarks.execution.states import all_states
from benchmarks.results.records import read_results
from benchmarks.run_all import main


@pytest.fixture
def snapshots(checkpoint: Path, tmp_path: Path) -> Path:
    """Three files of one run, made after 0, 1 and 10 epochs."""
    folder = tmp_path / "run" / "snapshots"
    folder.mkdir(parents=True)
    content: dict[str, Any] = torch.load(checkpoint, weights_only=True)
    for epoch in (0, 1, 10):
        content["made_by"] = {"method": "moco", "recipe": "moco/smoke", "epochs": float(epoch)}
        content["state_dict"]["conv1.weight"] += 0.01 * epoch
        torch.save(content, folder / f"epoch{epoch:04d}.pt")
    return folder


def words(snapshots: Path, data: Path, folder: Path) -> list[str]:
    return [
        *("--snapshots", str(snapshots), "--name", "mine", "--data", str(data)),
        *("--results", str(folder / "results"), "--runs", str(folder / "runs")),
        *("--schedule", "smoke", "--tasks", "cifar10_knn"),
    ]


def test_a_curve_has_a_row_per_epoch_in_its_csv(
    snapshots: Path, small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(snapshots, small_data, tmp_path)) == 0
    assert "3 evaluations, 0 failed, " in capsys.readouterr().err
    states = [(state.identity[0], state.name) for state in all_states(tmp_path / "results")[0]]
    assert states == [(f"mine@epoch00{epoch}", "done") for epoch in ("00", "01", "10")]
    folder = tmp_path / "results" / "figures"
    with (folder / "mine.cifar10_knn.uniclr-2022-1.smoke.generated-data.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["0", "1", "10"]
    assert read_results(tmp_path / "results").runs == []
    assert "mine" not in (tmp_path / "results" / "tables" / "overview.md").read_text()


def test_a_wrong_request_of_snapshots_is_refused(
    snapshots: Path, small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option, value, fact in (
        ("--schedule", "paper", "cifar10_knn: 200 neighbors"),
        ("--name", "..", "--name '..' "),
        ("--name", "", "--name '' "),
        ("--snapshots", str(tmp_path), "--snapshot-epochs"),
        ("--data", str(tmp_path / "nowhere"), "nowhere"),
    ):
        assert main([*words(snapshots, small_data, tmp_path), option, value]) == 2
        assert fact in capsys.readouterr().err


def test_curve_continues_after_a_broken_snapshot(
    snapshots: Path,
    small_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    later = snapshots / "epoch0011.pt"
    shutil.copy(snapshots / "epoch0010.pt", later)
    # one is torn before the plan, one after it
    (snapshots / "epoch0001.pt").write_bytes(b"torn")
    planned = write_requested

    def tear(*arguments: Any, **options: Any) -> None:
        planned(*arguments, **options)
        later.write_bytes(b"torn")

    monkeypatch.setattr("benchmarks.run_all.write_requested", tear)
    workspace = tmp_path / "runs" / "cells" / "mine@epoch0000"
    workspace.parent.mkdir(parents=True)
    workspace.write_text("a file where the cell's folder belongs")
    assert main(words(snapshots, small_data, tmp_path)) == 1
    output, text = capsys.readouterr()
    assert "mine@epoch0001  failed: " in text
    assert "3 evaluations, 2 failed, 1 checkpoint could not be read, " in text
    assert "failed  mine@epoch0001  " in output
    runs = read_results(tmp_path / "results").snapshots
    failed = [run for run in runs if run.failure]
    assert [failure.backbone.name for failure in failed] == ["mine@epoch0000", "mine@epoch0011"]
    assert all(f"failed  {item.backbone.name}  cifar10_knn  " in output for item in failed)
    (path,) = (tmp_path / "results" / "figures").glob("*.csv")
    with path.open() as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["10"]


def test_a_plan_of_snapshots_writes_nothing(
    snapshots: Path, small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words(snapshots, small_data, tmp_path), "--plan", "full"]) == 0
    assert capsys.readouterr().out.count("\nmine@epoch") == 3
    assert main([*words(snapshots, small_data, tmp_path), "--plan"]) == 0
    assert "Nearest neighbors            3       3" in capsys.readouterr().out
    assert not list((tmp_path / "results").rglob("*.json"))
