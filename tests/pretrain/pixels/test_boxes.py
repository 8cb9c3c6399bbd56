"""Boxes against torchvision's."""

import pytest
import torch
from torchvision.transforms import v2

from pretrain.pixels.boxes import draw_box

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
