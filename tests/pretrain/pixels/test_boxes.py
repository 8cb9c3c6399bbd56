"""Boxes against torchvision's."""

import pytest
import torch
from torchvision.transforms import v2

from pretrain.pixels.boxes import Box, draw_box

SIZES = ((375, 500), (500, 333), (32, 32), (1, 1), (3, 700), (700, 3), (100, 140))


def test_a_box_is_the_one_that_torchvision_draws_from_the_same_state(
    subtests: pytest.Subtests,
) -> None:
    for height, width in SIZES:
        with subtests.test(height=height, width=width):
            crop, image = v2.RandomResizedCrop(8), torch.empty(3, height, width)
            generator = torch.Generator()
            for seed in range(200):
                torch.manual_seed(seed)
                expected = crop.make_params([image])
                assert draw_box(generator.manual_seed(seed), height, width)._asdict() == expected
                assert torch.equal(generator.get_state(), torch.get_rng_state())


def test_an_image_that_is_too_long_gives_the_central_box_of_an_allowed_aspect() -> None:
    generator = torch.Generator().manual_seed(0)
    assert draw_box(generator, 3, 700) == Box(top=0, left=348, height=3, width=4)
