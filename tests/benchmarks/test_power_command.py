"""python -m benchmarks.power on records."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.power import main
from tests.synthetic_records import record
from transfer.outcomes import per_image

KNN: dict[str, Any] = {
    "task": "cifar10_knn",
    "protocol": "uniclr-2022/1",
    "request": {"task": "cifar10_knn"},
}
SVM: dict[str, Any] = {"request": {"task": "voc07_svm"}}
LINEAR: dict[str, Any] = {
    "task": "cifar10_linear",
    "protocol": "uniclr-2022/1",
    "request": {"task": "cifar10_linear"},
}


def write(folder: Path, name: str, chance: float, seed: int = 0, **fields: Any) -> None:
    rng = np.random.default_rng(seed + len(name))
    right = rng.random(2000) < chance
    details = per_image(right, np.zeros(2000, np.int64))
    second = {
        "name": name,
        "sha256": name[0] * 64,
        "seed": seed,
        "details": details,
        "wall_s": 3600.0,
    }
    record(folder, 100 * float(right.mean()), **second, **fields)


def table(text: str) -> dict[str, list[str]]:
    rows = [line.split() for line in text.split("\n\n")[0].splitlines()]
    return {row[0]: row[1:] for row in rows[1:]}


def test_each_common_task_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("mine", "other"):
        write(tmp_path, name, 0.7, **KNN)
        for seed in range(3):
            write(tmp_path, name, 0.7, seed, **LINEAR)
        record(tmp_path, 80.0, name=name, sha256=name[0] * 64, **SVM)
    args = ["--results", str(tmp_path), "--name", "mine", "other", "--points", "3"]
    assert main(args) == 0
    printed = capsys.readouterr().out
    rows = table(printed)
    assert {key: row[:2] for key, row in rows.items()} == {
        "cifar10_knn": ["2,000", "1"],
        "cifar10_linear": ["2,000", "3"],
        "voc07_svm": ["4,952", "1"],
    }
    assert rows["cifar10_knn"][3:] == ["none", "none", "-"], "kNN has no further seeds"
    assert "not their pre-training" in printed
    assert (
        "voc07_svm: one run each, so the deviation over seeds is assumed (?): 0.4 points" in printed
    )


def test_task_of_an_absent_plugin_has_a_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mine", "other"):
        write(tmp_path, name, 0.7, **(KNN | {"request": {"task": "cifar10_knn@plugin"}}))
    assert main(["--results", str(tmp_path), "--name", "mine", "other"]) == 0
    assert table(capsys.readouterr().out)["cifar10_knn@plugin"][:2] == ["2,000", "1"]


def test_hours_are_those_of_the_runs_that_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mine", "other"):
        record(tmp_path, 80.0, name=name, sha256=name[0] * 64, wall_s=3600.0, **SVM)
    assert main(["--results", str(tmp_path), "--name", "mine", "other", "--points", "1.5"]) == 0
    printed = capsys.readouterr().out
    seeds = int(table(printed)["voc07_svm"][-2].rstrip("?"))
    assert seeds > 1
    assert f"voc07_svm {seeds} runs of each checkpoint, {2 * (seeds - 1)}.00 more hours" in printed


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--name", "mine", "nobody"], "nobody"),
        (["--name", "mine", "mine"], "expected two checkpoints"),
        (["--name", "mine", "other", "--points", "0"], "--points 0"),
        (["--name", "mine", "other", "--tasks", "in1k_linear"], "in1k_linear"),
    ],
)
def test_wrong_requests_end_with_2(
    words: list[str], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mine", "other"):
        write(tmp_path, name, 0.7, **KNN)
    assert main(["--results", str(tmp_path), *words]) == 2
    error = capsys.readouterr().err
    assert part in error
    assert ("--points" in words) != (f"--results {tmp_path}" in error)
