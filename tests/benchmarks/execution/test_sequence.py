"""Progress of a whole run."""

import pytest

from benchmarks.execution.sequence import LEAST_HOURS, Overall


def test_each_cell_is_announced_outside_of_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Overall(total=2, hours=2 * LEAST_HOURS)
    for task in ("voc07_svm", "coco_det"):
        shown.begin(f"mine  {task}")
        shown.end(0.0, failed=False)
    assert capsys.readouterr().err.splitlines() == ["[1/2] mine  voc07_svm", "[2/2] mine  coco_det"]
    assert shown.hours_ended == shown.hours  # cells without GPU time count as well


def test_the_time_left_follows_the_estimated_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Overall(total=3, hours=4.0, start=0.0)
    monkeypatch.setattr("benchmarks.execution.sequence.time.monotonic", lambda: 600.0)
    shown.end(1.0, failed=True)
    assert shown.state() == "1/3 cells, 1 failed, about 30 min 00 s left"
