"""Time is counted once, in the innermost part."""

import subprocess
import sys

import pytest
import torch

from benchmarks.speed.clock import Clock, seconds


def test_a_part_inside_another_is_not_counted_twice() -> None:
    ticks = iter((0.0, 1.0, 3.0, 6.0, 10.0, 15.0))
    clock = Clock("request", now=lambda: next(ticks))
    with clock.during(subject="task", part="training"):  # from 1 to 10
        clock.timed("extraction", lambda: None)()  # from 3 to 6
    clock.stop()
    parts = [("request", "rest"), ("task", "training"), ("task", "extraction")]
    assert [clock.spent[part] for part in parts] == [1 + 5, 2 + 4, 3]
    assert clock.total() == 15.0


@pytest.mark.skipif(torch.cuda.is_available(), reason="wall time is counted with a GPU")
def test_what_child_processes_compute_is_counted() -> None:
    before = seconds()
    subprocess.run([sys.executable, "-c", "sum(range(10_000_000))"], check=True)
    assert seconds() - before > 0.05


def test_with_a_gpu_time_is_read_when_its_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: done.append("work"))
    monkeypatch.setattr("time.perf_counter", lambda: float(len(done)))
    assert seconds() == 1.0
