"""Ways are timed in turn, and they do the same where they must."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.speed import crops, svm, views
from benchmarks.speed.harness import compare
from tests.pretrain.pixels.photographs import as_jpeg, photograph

Output = pytest.CaptureFixture[str]


def test_ways_run_in_turn_after_a_warm_up() -> None:
    called: list[str] = []
    compare("", {way: partial(called.append, way) for way in "ab"}, 2)
    assert "".join(called) == "baabba"


def test_crops_of_all_ways_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(6):
        file = tmp_path / f"class{seed % 2}" / f"{seed}.jpg"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(as_jpeg(photograph(60, 80, seed)))
    results: dict[str, Any] = {}
    monkeypatch.setattr(
        crops,
        "compare",
        lambda _, ways, *__, **___: results.update({n: w() for n, w in ways.items()}),
    )
    crops.run(crops.Settings(data=tmp_path, images=5, crop_px=32))
    ((usual,),) = results["torchvision"]
    ours = results["decode, crop, normalized"]
    assert usual.shape == ours.shape == (5, 3, 32, 32)
    assert torch.equal(ours, results["kept images: crop, normalized"])
    raw = results["decode, crop, bytes"]
    assert torch.equal(raw, results["kept images: crop, bytes"])
    assert torch.equal(raw, results["fine-tuning: decode, crop, bytes"][0].pixels)


def test_svm_prints_the_ratio_of_each_solver(capsys: Output) -> None:
    svm.run(svm.Settings(n=240, dim=32, classes=8))
    assert "1.00 times as fast" in capsys.readouterr().out


def test_views_print_the_ratio_of_each_way(capsys: Output) -> None:
    views.run(views.Settings(images=2, rounds=1))
    assert capsys.readouterr().out.count("1.00 times as fast") == len(views.VIEWS)
