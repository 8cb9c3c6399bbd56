"""Only runs with equal settings and data are averaged."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results.published import transfer_tasks
from tests.benchmarks.drawing.figure_records import snapshot
from tests.synthetic_records import blocks, failure, page, record, transfer_records

ROUNDED = {
    "details": {"features_in": "bfloat16"},
    "departures": ["frozen features in bfloat16, batch norms folded"],
}
NORM = {"num_processes": 2, "norm": "naiveSyncBN"}
UNLIKE: dict[str, dict[str, Any]] = {
    "features in bfloat16": ROUNDED,
    "engine other": {"engine": "other"},
    "2 processes": {"details": {"num_processes": 2}},
    "2 processes with naiveSyncBN": {"details": NORM},
    "crops/2": {"details": {"crops": "crops/2"}},
    "15 kinds": {"departures": ["15 kinds"]},
}
"""Changes of records, and the row label and note that follow."""


def plain(text: str) -> dict[str, str]:
    """Return the first number of each row, without superscripts."""
    marks = re.compile("[¹²³⁴ *]+$|^\\*+")
    return {marks.sub("", name): marks.sub("", cells[0]) for name, cells in blocks(text)[0].items()}


def notes_of(text: str, marks: str) -> str:
    """Return the notes that raised numbers stand for."""
    lines = dict(re.findall(r"^(\d+)\. (.*)$", text, flags=re.MULTILINE))
    return "; ".join(lines[str("⁰¹²³⁴⁵⁶⁷⁸⁹".index(mark))] for mark in marks.split())


def test_only_equal_runs_are_averaged(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (label, changes) in enumerate(UNLIKE.items()):
        with subtests.test(label):
            results = tmp_path / str(number)
            record(results, 80.0, seed=0, **changes)
            record(results, 86.0, seed=1)
            text = page(results)
            first = re.search(r"→ mine (?P<marks>[¹²³⁴ ]+) +\| +86.0 ", text)
            second = re.search(rf"→ mine \({label}\) (?P<marks>[¹²³⁴ ]+) +\| +80.0 ", text)
            assert first is not None
            assert second is not None
            assert label not in notes_of(text, first["marks"])
            assert label in notes_of(text, second["marks"])
            assert text.partition("## Backbones")[2].count("- mine: resnet50") == 1
            for seed, score in enumerate((80.0, 86.0)):
                record(results / "alike", score, seed=seed, **changes)
            text = page(results / "alike", "overview.md")
            assert blocks(text)[0] == {"mine": ["83.0 ± 4.2"]}
            assert label in text


def test_row_of_most_runs_has_the_plain_name(
    tmp_path: Path,
) -> None:
    for seed in (0, 1):
        record(tmp_path / "two", 80.0, seed=seed, **ROUNDED)
    record(tmp_path / "two", 86.0, seed=2)
    rows = plain(page(tmp_path / "two", "overview.md"))
    assert rows["mine"] == "80.0 ± 0.0"
    assert rows["mine (features in float32)"] == "86.0"
    record(tmp_path / "one", 80.0, seed=1, **ROUNDED)
    record(tmp_path / "one", 86.0, seed=2)
    failure(tmp_path / "one", "voc07_svm", "MemoryError: out of memory")
    text = page(tmp_path / "one", "overview.md")
    assert plain(text)["mine"] == "86.0"
    line = next(line for line in text.splitlines() if line.startswith("| mine") and "86.0" in line)
    assert "seed 0 failed: MemoryError" in notes_of(text, line.partition("86.0")[2].strip(" |*"))


def test_a_failure_stands_with_its_weights_and_its_data(tmp_path: Path) -> None:
    record(tmp_path, 80.0, seed=1)
    failure(tmp_path, "voc07_svm", "MemoryError", sha256="b" * 64, small="generated")
    first, second = page(tmp_path, "overview.md").split("## Generated data")
    assert "80.0" in first
    assert "failed" not in first
    assert "failed" in second


def test_no_average_is_made_of_unlike_runs(tmp_path: Path) -> None:
    transfer_records(tmp_path, transfer_tasks()[:6])
    transfer_records(tmp_path, transfer_tasks()[6:], **ROUNDED)
    text = page(tmp_path, "lorac_table2.md")
    assert next(v for k, v in blocks(text)[0].items() if "mine" in k)[-1].startswith("–")
    assert "the runs differ: features in bfloat16 and features in float32" in text


def test_unlike_snapshots_make_two_curves(tmp_path: Path) -> None:
    for epoch, changes in ((1, {}), (2, {}), (3, ROUNDED)):
        snapshot(tmp_path, "run", "simclr/x", epoch, 10.0 * epoch, **changes)
    page(tmp_path, "overview.md")
    files = {path.name: path for path in (tmp_path / "figures").glob("*.csv")}
    assert set(files) == {
        "run.cifar10_knn.uniclr-2022-1.paper.csv",
        "run.cifar10_knn.uniclr-2022-1.paper.features-in-bfloat16.csv",
    }
    whole = files["run.cifar10_knn.uniclr-2022-1.paper.csv"].read_text()
    assert [row[0] for row in csv.reader(whole.splitlines())] == ["epoch", "1", "2"]


def test_methods_beside_each_other_show_unlike_runs_in_rows_of_their_own(tmp_path: Path) -> None:
    for method in ("MoCo", "SimCLR"):
        made_by = {"method": method, "recipe": f"{method}/small", "epochs": 1, "data": "cifar10"}
        record(tmp_path, 70.0, backbone=method, made_by=made_by)
    record(tmp_path, 90.0, backbone="MoCo", made_by=made_by | {"method": "MoCo"}, seed=1, **ROUNDED)
    rows = blocks(page(tmp_path, "methods.md"))[0]
    assert any(name.startswith("MoCo (features in bfloat16)") for name in rows)
    assert len(rows) == 3
    for method in ("MoCo", "SimCLR"):  # another block, whose notes differ from those of the first
        made_by = {"method": method, "recipe": f"{method}/small", "epochs": 1, "data": "cifar10"}
        short = {"schedule": "short", "hash": "short", "engine": "torch", "seed": 1}
        record(tmp_path, 70.0, task="cifar10_knn", backbone=method, made_by=made_by, **short)
    text = page(tmp_path, "methods.md")
    assert "cifar10_knn top1" in text
    assert "All rows: ." not in text
