"""Batches and random crops depend on seed and position alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

import transfer.frozen.crops
from transfer.datasets.catalog import open_split
from transfer.frozen.crops import RandomCrops, batch_draws, crop_batches, draw_seed
from transfer.frozen.probe_training import ProbeTraining


def test_every_image_is_seen_once_per_pass() -> None:
    batches_of = list(batch_draws(10, 4, 0, range(5)))
    observed = [index for batch in batches_of for _, index in batch]
    assert sorted(observed[:10]) == sorted(observed[10:]) == list(range(10))
    assert observed[:10] != observed[10:]


@pytest.mark.parametrize("position", [0, 7, 128_000_000])
def test_seed_0_draws_by_the_position_alone_within_two_levels_of_torchvision(
    position: int, small_data: Path
) -> None:
    images = open_split("cars", small_data, "train")
    crops = RandomCrops(images, 32, seed=0)
    torch.manual_seed(position)
    crop = v2.RandomResizedCrop(32, scale=(0.08, 1.0), antialias=True)
    expected = v2.functional.pil_to_tensor(v2.RandomHorizontalFlip()(crop(images[3][0])))
    pixels, labels = crops([(position, 3)])
    assert labels.tolist() == [images[3][1]]
    assert (pixels[0].int() - expected.int()).abs().max() <= 2


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_batches_do_not_depend_on_workers(
    num_workers: int, small_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = open_split("cars", small_data, "train")
    training = ProbeTraining(learning_rates=(1.0,), labels="rotations", crop_px=32)
    monkeypatch.setattr(transfer.frozen.crops, "num_workers", lambda _: num_workers)
    batches = list(crop_batches(images, training, 3, 8, range(2, 5)))
    for step, (pixels, labels) in enumerate(batches, 2):
        positions = next(batch_draws(len(images), 8, 3, range(step, step + 1)))
        raw, expected = RandomCrops(images, 32, 3, "rotations")(positions)
        assert torch.equal(pixels, raw)
        assert torch.equal(labels, expected)


def test_seeds_share_no_draw_within_ten_million() -> None:
    starts = np.sort([draw_seed(seed, 0) for seed in range(100)])
    gaps = np.diff(starts, append=starts[0] + 2**32)
    assert gaps.min() > 10_000_000
    assert max(draw_seed(seed, 2**40) for seed in range(100)) < 2**32
    assert [draw_seed(seed, 5) for seed in (0, 1)] == [5, 5 + 2_654_435_769]


def test_a_rotated_view_is_the_plain_one_turned_by_its_label(small_data: Path) -> None:
    images = open_split("cars", small_data, "train")
    positions = [(position, 0) for position in range(24)]
    plain, _ = RandomCrops(images, 16, 0)(positions)
    turned, labels = RandomCrops(images, 16, 0, "rotations")(positions)
    assert set(labels.tolist()) == {0, 1, 2, 3}
    for item, second, quarters in zip(plain, turned, labels.tolist(), strict=True):
        assert torch.equal(item.rot90(quarters, (1, 2)), second)
