"""Everything that a run prints after its last cell fits on one screen."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.execution.ending import finish_run
from benchmarks.pages.final_screen import terminal_lines
from benchmarks.pages.published import transfer_tasks
from benchmarks.planning.options import RunAll
from tests.synthetic_records import put, record

REASON = " ".join(["a long reason"] * 22)
COLUMNS = 80


def failed_cell(results: Path, task: str, seed: int) -> None:
    content = {"format": "ssl-failure/1", "backbone": "mine", "task": task, "seed": seed}
    content |= {"protocol": "lorac-2021/1", "schedule": "paper", "reason": REASON}
    content |= {"primary_metric": "top1", "heading": "Linear transfer"}
    put(results / "mine", f"{task}.seed{seed}.failed.json", content)


def row(name: str, task: str, seed: int) -> Any:
    """Return what the ending reads of a planned cell."""
    return SimpleNamespace(
        cell=SimpleNamespace(
            backbone=SimpleNamespace(name=name, file=""),
            key=task,
            task=SimpleNamespace(protocol="lorac-2021/1"),
            settings=SimpleNamespace(schedule="paper"),
            seed=seed,
        ),
        state="run",
        missing=(),
    )


def test_the_whole_end_fits_60_lines_of_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    results = Path("results")
    names = [f"checkpoint-{number}" for number in range(5)]
    rows = [row(name, task, 0) for task in transfer_tasks() for name in names]
    for number, name in enumerate(names):
        for task in transfer_tasks():
            changes = {"backbone": name, "sha256": f"{number:064d}", "task": task}
            record(results, 40.0, protocol="lorac-2021/1", **changes)
    for seed in range(10):
        failed_cell(results, transfer_tasks()[0], seed)
        rows.append(row("mine", transfer_tasks()[0], seed))
    for place in range(7):  # problems of figures, too
        put(results / "training", f"{place}.json", {})
    request = RunAll(results=results, runs=tmp_path / "runs")
    failed = [one.cell for one in rows[-10:]]
    assert finish_run(rows, failed, request, time.monotonic(), {"torn": REASON}) == 1
    printed = capsys.readouterr()
    lines = (printed.out + printed.err).splitlines()
    assert sum(terminal_lines(line, COLUMNS) for line in lines) <= 60
    assert any(line.startswith("report ") for line in lines)
    assert sum(line.startswith("failed  ") for line in lines) == 8
    assert "... and 3 more failures below tables/" in lines
    assert lines[-1].startswith("70 cells, 10 failed, 1 checkpoint could not be read")
    assert REASON in (results / "report" / "index.html").read_text()  # all of it
    (path, *_) = sorted((results / "mine").rglob("*.failed.json"))
    assert json.loads(path.read_text())["reason"] == REASON
