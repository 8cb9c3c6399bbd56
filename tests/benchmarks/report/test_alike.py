"""Results that must not share a line stand on lines of their own."""

from pathlib import Path
from typing import Any

from benchmarks.pages.published import transfer_tasks
from benchmarks.report_parts.charts import Chart
from benchmarks.report_parts.contents import read_contents
from benchmarks.report_parts.page import parts_by_task
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


def test_snapshots_of_each_schedule_and_engine_have_a_line_of_their_own(tmp_path: Path) -> None:
    for epoch in (1, 2):
        snapshot(tmp_path, epoch)
        snapshot(tmp_path, epoch, **SHORT)
        snapshot(tmp_path, epoch, engine="other")
    names = [name for _, _, name in snapshot_chart(tmp_path).legend]
    assert len(names) == len({*names}) == 3
    assert sum("smoke" in name for name in names) == 1
    assert sum("engine" in name for name in names) == 1


def test_a_ring_is_explained_only_where_one_is_drawn(tmp_path: Path) -> None:
    scores = {"0.1": 40.0, "1.0": 50.0, "10.0": 45.0}
    found: tuple[dict[str, Any], ...] = (
        {"mean_cross_validated_AP": scores},
        {"val_accuracy": scores, "learning_rate": 1.0},
    )
    rings = []
    for place, details in enumerate(found):
        complete(tmp_path / str(place), "mine", TASK, details=details)
        (part,) = parts_by_task(read_contents(tmp_path / str(place)))
        rings.append(part.charts[0].note.startswith("Ring"))
    assert rings == [False, True]
