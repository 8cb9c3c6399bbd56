"""Which images make up which batch, and what is drawn of them: by seed and place alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from transfer.backbone import InputFormat
from transfer.datasets.catalog import open_split
from transfer.frozen.crops import BatchIndices, RandomCrops, RandomView, draw_seed
from transfer.frozen.transforms import normalize_image, rotate_quarters


def test_every_image_is_seen_once_per_pass() -> None:
    batches_of = list(BatchIndices(num_images=10, batch_size=4, seed=0, steps=range(5)))
    seen = [index for batch in batches_of for _, index in batch]
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(10))
    assert seen[:10] != seen[10:]


def test_places_after_an_interruption_are_those_of_the_whole_run() -> None:
    whole = list(BatchIndices(num_images=10, batch_size=4, seed=0, steps=range(8)))
    assert list(BatchIndices(num_images=10, batch_size=4, seed=0, steps=range(5, 8))) == whole[5:]


@pytest.mark.parametrize("position", [0, 7, 128_000_000])
def test_seed_0_draws_by_the_position_alone_as_all_records_so_far(
    position: int, small_data: Path
) -> None:
    images, form = open_split("cars", small_data, "train"), InputFormat(size_px=32)
    crops = RandomCrops(images, RandomView(px=32), form, seed=0)
    torch.manual_seed(position)
    crop = v2.RandomResizedCrop(32, scale=(0.08, 1.0), antialias=True)
    expected = normalize_image(v2.RandomHorizontalFlip()(crop(images[3][0])), form)
    assert torch.equal(crops[position, 3][0], expected)


def test_other_seeds_draw_other_crops_of_the_same_image(small_data: Path) -> None:
    images, form = open_split("cars", small_data, "train"), InputFormat(size_px=32)
    drawn = [RandomCrops(images, RandomView(px=32), form, seed)[5, 3][0] for seed in range(8)]
    assert not any(torch.equal(drawn[0], other) for other in drawn[1:])
    assert not any(torch.equal(drawn[1], other) for other in drawn[2:])


def test_seeds_share_no_draw_within_ten_million() -> None:
    starts = np.sort([draw_seed(seed, 0) for seed in range(100)])
    gaps = np.diff(starts, append=starts[0] + 2**32)
    assert gaps.min() > 10_000_000
    assert max(draw_seed(seed, 2**40) for seed in range(100)) < 2**32


def test_other_seeds_shuffle_otherwise() -> None:
    orders = [next(iter(BatchIndices(20, 20, seed, range(1)))) for seed in (0, 1, 256)]
    assert len({tuple(index for _, index in order) for order in orders}) == 3


def test_a_turn_is_told_and_undone_by_its_complement() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (48, 40, 3), dtype=np.uint8)
    image, told = Image.fromarray(pixels), set()
    for seed in range(24):
        plain, label = RandomView(px=16)(image, 7, seed)
        assert label == 7
        view, quarters = RandomView(px=16, labels="rotations")(image, 7, seed)
        assert rotate_quarters(view, (4 - quarters) % 4).tobytes() == plain.tobytes()
        # numpy turns as Pillow does, counterclockwise
        assert np.array_equal(np.rot90(np.asarray(plain), quarters), np.asarray(view))
        told.add(quarters)
    assert told == {0, 1, 2, 3}
