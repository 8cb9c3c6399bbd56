"""Progress of a whole run."""

import pytest

from benchmarks.execution.sequence import LEAST_HOURS, Overall, overall_progress


def test_each_cell_is_announced_outside_of_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with overall_progress([1.0, 2.0]) as shown:
        shown.begin("mine  voc07_svm")
        shown.end(1.0, failed=False)
        shown.begin("mine  coco_det")
    assert capsys.readouterr().err.splitlines() == ["[1/2] mine  voc07_svm", "[2/2] mine  coco_det"]


def test_the_time_left_follows_the_estimated_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Overall(total=3, hours=4.0, start=0.0)
    monkeypatch.setattr("benchmarks.execution.sequence.time.monotonic", lambda: 600.0)
    shown.end(1.0, failed=True)
    assert shown.state() == "1/3 cells, 1 failed, about 30 min 00 s left"


def test_cells_without_gpu_time_count_as_well() -> None:
    with overall_progress([0.0, 0.0]) as shown:
        assert shown.hours == 2 * LEAST_HOURS
        shown.end(0.0, failed=False)
        shown.end(0.0, failed=False)
    assert shown.state() == "2/2 cells"
