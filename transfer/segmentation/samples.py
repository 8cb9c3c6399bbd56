"""Training samples: images and their masks, scaled, flipped and cropped.

The scale refers to the original image, as in MoCo. mmsegmentation differs: its RandomResize refers
to a fixed short side, and its VOC pipelines distort colors. Pillow filters when it shrinks an
image; OpenCV, which mmsegmentation uses, skips pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from transfer.datasets.segmented import Segmented
from transfer.finetuning import stream
from transfer.segmentation.recipe import SegmentationRecipe


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample(stream.Sample):
    """A crop and the classes of its pixels, smaller than the crop size if the image is smaller."""

    image: Tensor
    """(3, H, W) uint8, RGB."""
    mask: Tensor
    """(H, W) uint8: classes, 255 for ignored pixels."""


def training_samples(
    split: Segmented, recipe: SegmentationRecipe, seed: int
) -> stream.Samples[Sample]:
    """Return the random crops of all images of a split."""

    def batch(places: Sequence[stream.Place]) -> list[Sample]:
        return [training_sample(split, index, recipe, (seed, place)) for place, index in places]

    return stream.Samples(len(split), batch)


def training_sample(
    split: Segmented, index: int, recipe: SegmentationRecipe, seed: int | Sequence[int]
) -> Sample:
    """Return a crop; seed: one number or several, from which scale, flip and position are drawn."""
    random = np.random.default_rng(seed)
    scale = float(random.uniform(*recipe.scales))
    flipped = bool(random.random() < recipe.flip_share)
    image, mask = split.source.decode(index), Image.fromarray(split.mask(index))
    width, height = (max(1, round(side * scale)) for side in image.size)
    left, top = (int(random.integers(max(0, s - recipe.crop_px) + 1)) for s in (width, height))
    box = (left, top, min(width, left + recipe.crop_px), min(height, top + recipe.crop_px))
    image = image.resize((width, height), Image.Resampling.BILINEAR).crop(box)
    mask = mask.resize((width, height), Image.Resampling.NEAREST).crop(box)
    if flipped:
        image, mask = (i.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for i in (image, mask))
    return Sample(image=pixels(image), mask=torch.from_numpy(np.array(mask)))


def pixels(image: Image.Image) -> Tensor:
    """Return the pixels (3, H, W) uint8 of an RGB image."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
