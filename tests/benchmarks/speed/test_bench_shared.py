"""run_all against each task by itself: what is shared, and in which order the ways are timed."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import transfer.frozen.linear_heads
from benchmarks.speed import bench_shared, excerpts
from benchmarks.speed.bench_shared import (
    Metrics,
    Settings,
    by_run_all,
    differences,
    each_by_itself,
    report,
    run,
)
from benchmarks.speed.clock import Clock
from benchmarks.speed.excerpts import CIFAR10_PER_CLASS, link_cifar10, link_photographs
from benchmarks.speed.one_rate_per_run import one_rate_per_run
from transfer.backbone import Backbone
from transfer.cells.checked_data import check_once
from transfer.cells.request import CellSettings
from transfer.datasets.catalog import open_split
from transfer.frozen.features import Features
from transfer.frozen.linear_heads import train_heads
from transfer.frozen.probe_training import ProbeTraining

KEYS = ("cifar10_knn", "cifar10_lowshot_knn")


def test_each_task_by_itself_extracts_and_run_all_does_so_once(
    checkpoint: Path, small_data: Path, tmp_path: Path
) -> None:
    apart, found = each_by_itself(KEYS, checkpoint, small_data, tmp_path / "alone")
    remembered = check_once.cache_info().hits
    shared, same = by_run_all(KEYS, checkpoint, small_data, tmp_path / "together")
    assert (found, remembered) == (same, 0)
    for part in ("decode", "forward"):
        assert [apart.spent[key, part] > 0 for key in KEYS] == [True, True]
        assert [shared.spent[key, part] > 0 for key in KEYS] == [True, False]
    assert differences(found, same) == "metrics equal"
    assert "ratios" in report(KEYS, [(apart, shared)])


def test_by_itself_a_reading_trains_its_own_head_on_a_pass_of_its_own(
    small_backbone: Backbone, settings: CellSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []

    def add_pixels(network: nn.Module, pixels: Tensor) -> Tensor:
        passes.append(len(pixels))
        return pixels.reshape(len(pixels), 512, -1).sum(dim=2)

    monkeypatch.setattr(transfer.frozen.linear_heads, "forward", add_pixels)
    images = open_split("cars", settings.data, "train").subset(range(8))
    training = ProbeTraining(learning_rates=(0.1, 1.0, 2.0), steps=2, batch_size=4, crop_px=32)
    test = Features(torch.randn(6, 512), torch.arange(6) % 3)
    together = train_heads(small_backbone, images, training, 0, settings.runs)
    assert len(passes) == 2
    with one_rate_per_run():
        apart = transfer.frozen.linear_heads.train_heads(
            small_backbone, images, training, 0, settings.runs / "apart"
        )
        assert len(passes) == 2 + 3 * 2
        transfer.frozen.linear_heads.train_and_score(
            small_backbone, images, training, test, 0, settings.runs / "one", 1
        )
        assert len(passes) == 2 + 3 * 2 + 2
    torch.testing.assert_close(apart.weight, together.weight)


def test_real_images_are_linked_in_the_folders_of_the_data_sets(tmp_path: Path) -> None:
    source, data = tmp_path / "source", tmp_path / "data"
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            folder = source / split / name
            folder.mkdir(parents=True)
            for number in range(3):
                Image.new("RGB", (32, 32), (number, 0, 0)).save(folder / f"{number}.png")
    with patch.dict(CIFAR10_PER_CLASS, train=2, test=1), patch.object(excerpts, "CIFAR10_VAL", 1):
        link_cifar10(source, data)
    link_photographs(source / "train", data)
    sizes = [len(open_split("cifar10", data, split)) for split in ("trainval", "val", "test")]
    assert sizes == [4, 2, 2]
    assert [len(open_split("in1k", data, split)) for split in ("trainval", "test")] == [6, 6]


def test_differences_of_metrics_are_told_in_points() -> None:
    apart = {"one": {"top1": 50.0, "top5": 70.0}, "two": {"top1": 1.0}}
    shared = {"one": {"top1": 50.5, "top5": 69.0}, "two": {"top1": 1.0}}
    assert differences(apart, shared) == (
        "metrics of 1 tasks equal; points of difference: one 1.00"
    )


def test_the_ways_are_timed_in_turn_from_empty_folders(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called = []

    def way(name: str) -> Any:
        def run(
            keys: Any, checkpoint: Path, data: Path, home: Path, schedule: str
        ) -> tuple[Clock, Metrics]:
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
    monkeypatch.setattr(bench_shared, "start_s", lambda: 0.0)
    run(Settings(rounds=2, tasks="cifar10_knn"))
    assert called == ["alone", "together", "together", "alone"]
    assert "ratios 3.00, 3.00" in capsys.readouterr().out
