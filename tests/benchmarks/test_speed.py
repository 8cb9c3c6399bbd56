"""Ways are timed in turn, every pair runs, and its ways do the same where they must."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.speed import crops, features, losses, probe
from benchmarks.speed.__main__ import main
from benchmarks.speed.harness import Comparison, measure, report
from tests.pretrain.pixels.photographs import as_jpeg, photograph


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """Two classes of three photographs each."""
    for seed in range(6):
        file = tmp_path / "photographs" / f"class{seed % 2}" / f"{seed}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(as_jpeg(photograph(60, 80, seed)))
    return tmp_path / "photographs"


def numbers(comparisons: Iterator[Comparison]) -> list[dict[str, float]]:
    """Return how far the ways of each comparison agree."""
    return [dict(each.agreement(measure(each, 1)[1])) for each in comparisons]


def only_results(comparisons: Iterator[Comparison]) -> dict[str, Any]:
    """Return the results of the ways of the only comparison."""
    (found,) = [measure(each, 1)[1] for each in comparisons]
    return found


def test_ways_run_in_turn_and_the_first_round_is_not_counted() -> None:
    called: list[str] = []
    ways = {way: partial(called.append, way) for way in "ab"}
    seconds, _ = measure(Comparison(title="", ways=ways), 2)
    assert "".join(called) == "baabba"
    assert [len(each) for each in seconds.values()] == [2, 2]


def test_a_ratio_is_that_of_processor_times() -> None:
    def spin(number: int) -> None:
        for _ in range(number):
            pass

    ways = {"slow": lambda: spin(4_000_000), "fast": lambda: spin(400_000)}
    _, slow, fast = report(Comparison(title="", ways=ways), 3)
    assert "1.00 times" in slow
    assert 5 < float(fast.split(" times")[0].split()[-1]) < 20


def test_losses_have_the_gradients_of_the_usual_ways() -> None:
    settings = losses.Settings(device="cpu", num_queries=16, queue_size=64, embedding_dim=16)
    distances = [
        distance for each in numbers(losses.comparisons(settings)) for distance in each.values()
    ]
    assert len(distances) == 4
    assert max(distances) < 1e-4  # a thousand eps: a softmax at 0.2 and its square amplify rounding


def test_crops_of_all_ways_are_the_same(photographs: Path) -> None:
    settings = crops.Settings(data=photographs, images=5, crop_px=32)
    found = only_results(crops.comparisons(settings))
    ((usual,),) = found["torchvision"]
    ours = found["decode, crop, normalized"]
    assert usual.shape == ours.shape == (5, 3, 32, 32)
    assert torch.equal(ours, found["kept images: crop, normalized"])
    assert torch.equal(found["decode, crop, bytes"], found["kept images: crop, bytes"])
    assert torch.equal(
        found["decode, crop, bytes"], found["fine-tuning: decode, crop, bytes"][0].pixels
    )


def test_bfloat16_changes_no_feature_by_much(checkpoint: Path, small_data: Path) -> None:
    settings = features.Settings(
        ckpt=checkpoint, data=small_data, batch_size=8, num_bank=20, num_queries=10
    )
    rounded, kept = numbers(features.comparisons(settings))
    assert rounded["smallest cosine of a feature with its rounded self"] > 0.99  # 8 bits
    assert kept == {"pixels that differ": 0}


def test_rates_end_alike_together_and_alone() -> None:
    (found,) = numbers(probe.comparisons(probe.Settings(crop_px=32, batch_size=4, steps=1)))
    (gap,) = found.values()
    assert gap < 1e-5  # sums of 512 products, in float32 in another order


STEPS = "steps --device cpu --batch-size 16 --steps 1 --rounds 1 --recipe moco/smoke"


@pytest.mark.parametrize(
    "words",
    [
        STEPS,
        "svm --n 240 --dim 32 --classes 8",
    ],
    ids=lambda words: words.split()[0],
)
def test_a_pair_prints_the_ratio_of_each_way(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
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
