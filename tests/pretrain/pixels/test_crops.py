"""Boxes against torchvision's; crops against Pillow's, in gray levels."""

import os
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional, v2

from pretrain.pixels.boxes import draw_box
from pretrain.pixels.crops import crop, orient
from pretrain.pixels.decoding import Pixels, decode
from tests.pretrain.pixels.photographs import as_jpeg, photograph

JPEGS = {".jpg", ".jpeg", ".JPEG"}
BOXES = ((0, 0, 64, 90), (3, 5, 50, 30), (40, 80, 1, 9), (7, 2, 20, 20))


def by_pillow(pixels: Pixels, box: tuple[int, ...], size_px: int) -> Pixels:
    cropped = functional.resized_crop(Image.fromarray(pixels), *box, [size_px, size_px])
    return np.asarray(cropped)


def levels_apart(first: Pixels, second: Pixels) -> Pixels:
    return np.abs(first.astype(np.float64) - second)


@pytest.mark.parametrize("size_px", [24, 48])
@pytest.mark.parametrize("box", BOXES)
def test_crops_are_within_two_levels_of_pillows(box: tuple[int, ...], size_px: int) -> None:
    image = photograph(width=90)
    expected = by_pillow(image, box, size_px)
    on_cpu = crop(image, box, size_px)
    assert on_cpu.flags.c_contiguous
    assert levels_apart(on_cpu, expected).max() <= 2


def test_random_crops_of_jpegs_are_within_two_levels_of_pillows(subtests: pytest.Subtests) -> None:
    for seed in range(6):
        with subtests.test(seed=seed):
            image = decode(as_jpeg(photograph(375 + 40 * seed, 500, seed)))
            box = draw_box(torch.Generator().manual_seed(seed), *image.shape[:2])
            difference = levels_apart(crop(image, box, 224), by_pillow(image, box, 224))
            assert difference.max() <= 2
            assert (difference > 0).mean() < 0.3


@pytest.mark.data
def test_random_crops_of_real_photographs_are_within_two_levels_of_pillows() -> None:
    data = Path(os.environ["DATASETS"])
    files = list(islice((file for file in data.rglob("*") if file.suffix in JPEGS), 300))
    if not files:
        pytest.skip(f"{data} holds no JPEG files")
    for seed, file in enumerate(files):
        image = decode(file.read_bytes())
        box = draw_box(torch.Generator().manual_seed(seed), *image.shape[:2])
        difference = levels_apart(crop(image, box, 224), by_pillow(image, box, 224))
        assert difference.max() <= 2, file


def test_a_view_is_mirrored_before_it_is_turned(subtests: pytest.Subtests) -> None:
    for flip in [False, True]:
        for quarters in range(4):
            with subtests.test(flip=flip, quarters=quarters):
                view = photograph(16, 16)
                result = orient(view, flip=flip, quarters=quarters)
                # numpy turns as Pillow does, counterclockwise
                assert np.array_equal(result, np.rot90(view[:, ::-1] if flip else view, quarters))


def test_a_box_is_the_one_that_torchvision_draws_from_the_same_state(
    subtests: pytest.Subtests,
) -> None:
    for height, width in ((375, 500), (500, 333), (32, 32), (1, 1), (3, 700), (700, 3), (100, 140)):
        with subtests.test(height=height, width=width):
            chance, image = v2.RandomResizedCrop(8), torch.empty(3, height, width)
            generator = torch.Generator()
            for seed in range(200):
                torch.manual_seed(seed)
                expected = chance.make_params([image])
                assert draw_box(generator.manual_seed(seed), height, width)._asdict() == expected
                assert torch.equal(generator.get_state(), torch.get_rng_state())
