"""The benchmark of crops compares what it says that it compares."""

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.speed.bench_crops import main, photographs, ways
from tests.pretrain.pixels.photographs import as_jpeg, photograph


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed in range(6):
        file = tmp_path / f"class{seed % 2}" / f"{seed}.jpg"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(as_jpeg(photograph(60, 80, seed)))
    return tmp_path


def test_both_ways_make_batches_of_one_shape_and_size_of_values(folder: Path) -> None:
    torch.manual_seed(0)
    work = ways(photographs(folder, 5), folder, 32)
    usual, ours, kept = (work[name]() for name in ("usual", "normalized", "kept, normalized"))
    assert isinstance(kept, torch.Tensor)
    assert isinstance(usual, torch.Tensor)
    assert isinstance(ours, torch.Tensor)
    assert usual.shape == ours.shape == (5, 3, 32, 32)
    assert usual.dtype == ours.dtype == torch.float32
    assert torch.equal(ours, kept)
    assert (usual.mean() - ours.mean()).abs() < 0.5


def test_fine_tuning_gets_the_crops_of_a_probe(folder: Path) -> None:
    work: dict[str, Any] = ways(photographs(folder, 5), folder, 32)
    (samples,) = work["fine-tuning"]()
    assert torch.equal(samples.pixels, work["bytes"]()[0])


def test_the_command_prints_a_ratio_of_each_way(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"--data {folder} --images 4 --crop-px 32 --rounds 1"
    assert main(words.split()) == 0
    printed = capsys.readouterr().out
    assert printed.count(" times as fast") == 7
