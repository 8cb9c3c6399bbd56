"""Snapshots become a table and a CSV file per curve, apart from the tables of backbones."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.curves import main
from benchmarks.records import read_results


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


def test_a_curve_has_a_row_per_epoch_in_its_csv_and_in_the_table(
    snapshots: Path, small_data: Path, tmp_path: Path
) -> None:
    assert main(words(snapshots, small_data, tmp_path)) == 0
    with (tmp_path / "results" / "curves" / "mine.cifar10_knn.smoke.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["0", "1", "10"]
    lines = (tmp_path / "results" / "tables" / "curves_cifar10_knn.md").read_text().splitlines()
    shown = [line.split("|")[1:3] for line in lines if line.startswith("|")][2:]
    assert [(epoch.strip(), score.strip()) for epoch, score in shown] == [
        (row["epoch"], f"{float(row['top1']):.2f}") for row in rows
    ]


def test_snapshots_are_no_rows_of_other_tables(
    snapshots: Path, small_data: Path, tmp_path: Path
) -> None:
    assert main(words(snapshots, small_data, tmp_path)) == 0
    assert read_results(tmp_path / "results").done == ()
    assert "mine" not in (tmp_path / "results" / "tables" / "overview.md").read_text()


def test_a_folder_without_snapshots_is_a_wrong_request(
    tmp_path: Path, small_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(tmp_path, small_data, tmp_path)) == 2
    assert "--snapshot-epochs" in capsys.readouterr().err
