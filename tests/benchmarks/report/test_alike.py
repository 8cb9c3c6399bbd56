"""Results that must not share a line or a mean stand on lines of their own."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.pages.published import transfer_tasks
from benchmarks.report_parts.by_task import parts_by_task
from benchmarks.report_parts.charts import Chart
from benchmarks.report_parts.contents import read_contents
from benchmarks.report_parts.task_classes import NumberTable
from tests.benchmarks.report.complete_records import LORAC, complete

TASK = transfer_tasks()[0]
SHORT = {"schedule": "smoke"}


def snapshot(results: Path, epoch: int, **changes: Any) -> None:
    """Write the record of a snapshot of the run "jcl"."""
    name = f"jcl@{epoch}"
    backbone = {"name": name, "arch": "resnet50", "stem": "imagenet", "sha256": f"{epoch:064d}"}
    backbone |= {"source": "", "made_by": LORAC | {"epochs": float(epoch)}}  # type: ignore[dict-item]
    folder = f"snapshots/{changes.get('schedule', 'paper')}-{changes.get('engine', '')}-{name}"
    complete(results, folder, TASK, **({"backbone": backbone} | changes))


def snapshot_chart(results: Path) -> Chart:
    """Return the only chart over pre-training."""
    (part,) = parts_by_task(read_contents(results))
    (chart,) = part.charts
    return chart


def spread(results: Path) -> list[tuple[str, tuple[float | None, ...]]]:
    """Return the rows of the spread over runs."""
    parts = parts_by_task(read_contents(results))
    tables: list[NumberTable] = [table for part in parts for table in part.tables]
    return [row for table in tables if table.title == "Spread over runs" for row in table.rows]


def test_snapshots_of_each_schedule_and_engine_have_a_line_of_their_own(tmp_path: Path) -> None:
    for epoch in (1, 2):
        snapshot(tmp_path, epoch)
        snapshot(tmp_path, epoch, **SHORT)
        snapshot(tmp_path, epoch, engine="other")
    names = [entry.name for entry in snapshot_chart(tmp_path).legend]
    assert len(names) == len({*names}) == 3
    assert sum("smoke" in name for name in names) == 1
    assert sum("engine" in name for name in names) == 1


def test_a_snapshot_without_its_main_number_is_no_point(tmp_path: Path) -> None:
    snapshot(tmp_path, 1, metrics={"top1": 12.0})
    assert parts_by_task(read_contents(tmp_path)) == []


@pytest.mark.parametrize(
    "other",
    [
        SHORT,
        {"engine": "other"},
        {"details": {"features_in": "bfloat16"}},
        {"details": {"num_processes": 2}},
        {"departures": ["epochs 2 instead of 100"]},
        {"protocol": {"name": "lorac-2021/1", "hash": "b", "paper_hash": "a", "fields": {}}},
        {"data": {"aircraft": {"fingerprint": "g", "small": "excerpt", "tolerated": 0}}},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", [0, 1])
def test_other_conditions_are_no_spread_over_seeds(
    tmp_path: Path, other: dict[str, Any], seed: int
) -> None:
    complete(tmp_path / "records" / "a", "mine", TASK, metrics={"mean_per_class": 40.0})
    complete(tmp_path / "records" / "b", "mine", TASK, seed, **other)
    assert spread(tmp_path) == []


def test_kinds_of_runs_have_rows_of_their_own(tmp_path: Path) -> None:
    for seed in (0, 1):
        complete(tmp_path / "a", "mine", TASK, seed)
        complete(tmp_path / "b", "mine", TASK, seed, **SHORT)
    names = [name for name, _ in spread(tmp_path)]
    assert len(names) == len({*names}) == 2
    assert all(name.endswith(", seeds") for name in names)


@pytest.mark.parametrize(("chosen", "ring"), [({}, False), ({"learning_rate": 1.0}, True)])
def test_a_ring_is_explained_only_where_one_is_drawn(
    tmp_path: Path, chosen: dict[str, float], ring: bool
) -> None:
    scores = {"0.1": 40.0, "1.0": 50.0, "10.0": 45.0}
    key = "val_accuracy" if chosen else "mean_cross_validated_AP"
    complete(tmp_path, "mine", TASK, details={key: scores} | chosen)
    (part,) = parts_by_task(read_contents(tmp_path))
    assert part.charts[0].note.startswith("Ring") == ring
