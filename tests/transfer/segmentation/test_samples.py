"""Image and mask are scaled and cropped together."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.transfer.segmentation.drawn_split import COLORS, drawn_split
from transfer.datasets.segmented import Segmented, write_mask
from transfer.finetuning.stream import single_samples
from transfer.segmentation.recipe import VOC_FCN
from transfer.segmentation.samples import Sample, training_sample

AS_IT_IS = replace(VOC_FCN, scales=(1.0, 1.0), flip_share=0.0)
PALETTE = torch.tensor(COLORS, dtype=torch.uint8)
GRAY = PALETTE[0].view(3, 1, 1)
"""Color of the background."""


@pytest.fixture
def split(tmp_path: Path) -> Segmented:
    return drawn_split(tmp_path)


def painted(sample: Sample) -> torch.Tensor:
    """The image that its mask draws."""
    return PALETTE[sample.mask.long()].permute(2, 0, 1)


def test_image_and_mask_are_scaled_alike_from_the_original(split: Segmented) -> None:
    for scale in (0.5, 0.7, 1.3, 2.0):  # no edge falls on a pixel's center
        for index in range(4):
            recipe = replace(AS_IT_IS, scales=(scale, scale))
            sample = training_sample(split, index, recipe, 0)
            assert sample.image.shape[1:] == sample.mask.shape
            assert sample.mask.shape == (round(48 * scale), round(72 * scale))
            inside = PALETTE[int(split.mask(index).max())].view(3, 1, 1)
            away = [(sample.image.float() - color).norm(dim=0) for color in (inside, GRAY)]
            differing = (away[0] < away[1]) != (sample.mask > 0)
            # of a square's corner pixels less than half may be inside, though half of each side is
            assert differing.sum() <= 4
            if scale == 2:
                doubled = split.mask(index).repeat(2, axis=0).repeat(2, axis=1)
                assert np.array_equal(sample.mask.numpy(), doubled)


def test_a_flip_turns_both(split: Segmented) -> None:
    flipped = training_sample(split, 1, replace(AS_IT_IS, flip_share=1.0), 0)
    assert np.array_equal(flipped.mask.numpy(), split.mask(1)[:, ::-1])
    assert torch.equal(flipped.image, painted(flipped))


def test_crops_of_image_and_mask_agree_and_reach_every_place(tmp_path: Path) -> None:
    y, x = np.mgrid[:48, :52].astype(np.uint8)
    Image.fromarray(np.stack([y, x, 0 * x], axis=2)).save(tmp_path / "places.png")
    write_mask(tmp_path / "mask.png", (x + y) % 3)
    split = Segmented(tmp_path, ["places.png"], ["mask.png"], ("a", "b", "c"))
    corners = set()
    for seed in range(120):
        sample = training_sample(split, 0, replace(AS_IT_IS, crop_px=44), seed)
        assert sample.mask.shape == (44, 44)
        rows, columns = sample.image[:2].int()
        assert torch.equal((rows + columns) % 3, sample.mask.int())
        corners.add((int(rows[0, 0]), int(columns[0, 0])))
    assert {top for top, _ in corners} == set(range(5))
    assert {left for _, left in corners} == set(range(9))


def test_masks_are_not_interpolated(split: Segmented) -> None:
    samples = [training_sample(split, 3, VOC_FCN, seed) for seed in range(20)]
    assert {int(k) for sample in samples for k in sample.mask.unique()} == {0, 2}
    assert len({sample.mask.shape for sample in samples}) > 10


def test_a_place_of_the_stream_decides_what_is_drawn(split: Segmented) -> None:
    samples = single_samples(split, training_sample, replace(VOC_FCN, crop_px=33), 5)
    first, again, second = samples.batch([(3, 0), (3, 0), (4, 0)])
    assert torch.equal(first.image, again.image)
    assert not torch.equal(first.image, second.image)
