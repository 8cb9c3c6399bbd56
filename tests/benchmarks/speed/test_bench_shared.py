"""run_all against each task by itself: what is shared, and in which order the ways are timed."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.speed import bench_shared
from benchmarks.speed.bench_shared import (
    Metrics,
    Settings,
    by_run_all,
    each_by_itself,
    report,
    run,
)
from benchmarks.speed.clock import Clock
from transfer.cells.checked_data import check_once

KEYS = ("cifar10_knn", "cifar10_lowshot_knn")


def test_each_task_by_itself_extracts_and_run_all_does_so_once(
    checkpoint: Path, small_data: Path, tmp_path: Path
) -> None:
    apart, found = each_by_itself(KEYS, checkpoint, small_data, tmp_path / "alone")
    remembered = check_once.cache_info().hits
    shared, same = by_run_all(KEYS, checkpoint, small_data, tmp_path / "together")
    assert (found, remembered) == (same, 0)
    assert [apart.spent[key, "extraction"] > 0 for key in KEYS] == [True, True]
    assert [shared.spent[key, "extraction"] > 0 for key in KEYS] == [True, False]
    assert "ratios" in report(KEYS, [(apart, shared)])


def test_the_ways_are_timed_in_turn_from_empty_folders(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called = []

    def way(name: str) -> Any:
        def run(keys: Any, checkpoint: Path, data: Path, home: Path) -> tuple[Clock, Metrics]:
            called.append(name)
            assert not home.exists()
            ticks = iter((0.0, 6.0 if name == "alone" else 2.0))
            clock = Clock("all", now=lambda: next(ticks))
            clock.stop()
            return clock, {}

        run.__name__ = name
        return run

    monkeypatch.setattr(bench_shared, "WAYS", (way("alone"), way("together")))
    monkeypatch.setattr(bench_shared, "generate", lambda *_, **__: None)
    monkeypatch.setattr(bench_shared, "write_checkpoint", lambda *_: None)
    run(Settings(rounds=2, tasks="cifar10_knn"))
    assert called == ["alone", "together", "together", "alone"]
    assert "ratios 3.00, 3.00" in capsys.readouterr().out
