"""Crops become a batch, and its loss is one that processes and passes can share."""

from typing import cast

import pytest
import torch

from tests.transfer.segmentation.color_reader import RECIPE, Pass, color_reader
from tests.transfer.segmentation.drawn_split import COLORS
from transfer.datasets.segmented import IGNORED
from transfer.segmentation.network import pixel_loss
from transfer.segmentation.samples import Sample

SIDE = RECIPE.crop_px


def crop(height: int, width: int, label: int = 1) -> Sample:
    """Return an image of one class, in its color."""
    color = torch.tensor(COLORS[label], dtype=torch.uint8)[:, None, None]
    mask = torch.full((height, width), label, dtype=torch.uint8)
    return Sample(image=color.repeat(1, height, width), mask=mask)


def test_the_loss_is_the_logarithm_of_each_classs_share_by_a_slow_loop() -> None:
    logits = torch.randn(2, 4, 3, 5, dtype=torch.float64)
    masks = torch.arange(30, dtype=torch.uint8).reshape(2, 3, 5) % 4
    masks[1, :2] = IGNORED
    total = 0.0
    for n, y, x in torch.cartesian_prod(*map(torch.arange, masks.shape)):
        if masks[n, y, x] != IGNORED:
            scores = logits[n, :, y, x].exp()
            total -= float((scores[int(masks[n, y, x])] / scores.sum()).log())
    assert pixel_loss(logits, masks).item() == pytest.approx(total / masks.numel())


def test_small_crops_are_filled_on_the_right_and_below_with_the_mean_color() -> None:
    network = color_reader()
    network([crop(SIDE, SIDE), crop(30, 20)])
    whole, filled = cast(Pass, network.backbone).seen[0]
    assert filled.shape == (3, SIDE, SIDE)
    assert torch.equal(filled[:, :30, :20], whole[:, :30, :20])
    filled[:, :30, :20] = 0
    assert not filled.any()


def test_halves_of_a_batch_average_to_its_loss() -> None:
    network = color_reader().double()
    samples = [crop(SIDE, SIDE, 0), crop(9, 30, 1), crop(SIDE, 5, 2), crop(40, 40, 1)]
    halves = [network(samples[:2])["loss_seg"], network(samples[2:])["loss_seg"]]
    assert sum(halves).item() / 2 == pytest.approx(network(samples)["loss_seg"].item())
