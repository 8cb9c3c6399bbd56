"""Ways are timed in turn, every pair runs, and its ways do the same where they must."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.speed import crops, features, losses, probe
from benchmarks.speed.__main__ import main
from benchmarks.speed.harness import compare
from tests.pretrain.pixels.photographs import as_jpeg, photograph

Output = pytest.CaptureFixture[str]


def numbers(output: Output) -> dict[str, list[float]]:
    """Return what is printed below the ways, by name."""
    found: dict[str, list[float]] = {}
    for name, value in re.findall(r"^  ([^\n:]+): (\S+)$", output.readouterr().out, re.MULTILINE):
        found.setdefault(name, []).append(float(value))
    return found


def test_ways_run_in_turn_after_a_warm_up() -> None:
    called: list[str] = []
    compare("", {way: partial(called.append, way) for way in "ab"}, 2)
    assert "".join(called) == "baabba"


def test_losses_have_the_gradients_of_the_usual_ways(capsys: Output) -> None:
    small = {"num_queries": 16, "queue_size": 64, "embedding_dim": 16}
    losses.run(losses.Settings(device="cpu", rounds=1, **small))
    distances = numbers(capsys)["relative distance"]
    assert len(distances) == 3
    assert max(distances) < 1e-4  # a thousand eps: a softmax at 0.2 and its square amplify rounding


def test_crops_of_all_ways_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(6):
        file = tmp_path / f"class{seed % 2}" / f"{seed}.jpg"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(as_jpeg(photograph(60, 80, seed)))
    found: dict[str, Any] = {}
    monkeypatch.setattr(
        crops,
        "compare",
        lambda _, ways, *__, **___: found.update({n: w() for n, w in ways.items()}),
    )
    crops.run(crops.Settings(data=tmp_path, images=5, crop_px=32))
    ((usual,),) = found["torchvision"]
    ours = found["decode, crop, normalized"]
    assert usual.shape == ours.shape == (5, 3, 32, 32)
    assert torch.equal(ours, found["kept images: crop, normalized"])
    raw = found["decode, crop, bytes"]
    assert torch.equal(raw, found["kept images: crop, bytes"])
    assert torch.equal(raw, found["fine-tuning: decode, crop, bytes"][0].pixels)


def test_bfloat16_changes_no_feature_by_much(
    checkpoint: Path, small_data: Path, capsys: Output
) -> None:
    few = {"batch_size": 8, "num_bank": 20, "num_queries": 10, "rounds": 1}
    features.run(features.Settings(ckpt=checkpoint, data=small_data, **few))  # type: ignore[arg-type]
    found = numbers(capsys)
    assert found["smallest cosine of a feature with its rounded self"][0] > 0.99  # 8 bits


def test_rates_end_alike_together_and_alone(capsys: Output) -> None:
    probe.run(probe.Settings(crop_px=32, batch_size=4, steps=1, rounds=1))
    ((gap,),) = numbers(capsys).values()
    assert gap < 1e-5  # sums of 512 products, in float32 in another order


STEPS = "steps --device cpu --batch-size 16 --steps 1 --rounds 1 --recipe moco/smoke"


@pytest.mark.parametrize("words", [STEPS, "svm --n 240 --dim 32 --classes 8"])
def test_a_pair_prints_the_ratio_of_each_way(words: str, capsys: Output) -> None:
    assert main(words.split()) == 0
    assert "1.00 times as fast" in capsys.readouterr().out


@pytest.mark.slow
def test_two_processes_of_torchrun_print_each_line_once() -> None:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words += ["-m", "benchmarks.speed", *STEPS.split()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    (line,) = (line for line in run.stdout.splitlines() if line.startswith("moco/smoke"))
    assert line.endswith("2 x cpu")
