"""Training samples: images and masks, scaled, flipped and cropped.

The scale is relative to the original image, as in MoCo. mmsegmentation differs: its RandomResize is
relative to a fixed short side, and its VOC pipelines distort colors. Pillow uses antialiasing when
it shrinks an image; OpenCV, which mmsegmentation uses, does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from transfer.datasets.segmented import Segmented
from transfer.finetuning import stream
from transfer.finetuning.stream import pixels
from transfer.segmentation.recipe import SegmentationRecipe


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample(stream.Sample):
    """A crop with its mask, smaller for small images."""

    image: Tensor
    """(3, H, W) uint8, RGB."""
    mask: Tensor
    """(H, W) uint8: classes, 255 for ignored pixels."""


def training_sample(
    split: Segmented, index: int, recipe: SegmentationRecipe, seed: int | Sequence[int]
) -> Sample:
    """Return a crop with scale, flip and position drawn from the seed.

    seed: one or more numbers.
    """
    random = np.random.default_rng(seed)
    scale = float(random.uniform(*recipe.scales))
    flipped = bool(random.random() < recipe.flip_share)
    image, mask = split.source.decode(index), Image.fromarray(split.mask(index))
    width, height = (max(1, round(side * scale)) for side in image.size)
    x, y = (int(random.integers(max(0, s - recipe.crop_px) + 1)) for s in (width, height))
    box = (x, y, min(width, x + recipe.crop_px), min(height, y + recipe.crop_px))
    image = image.resize((width, height), Image.Resampling.BILINEAR).crop(box)
    mask = mask.resize((width, height), Image.Resampling.NEAREST).crop(box)
    if flipped:
        image, mask = (i.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for i in (image, mask))
    return Sample(image=pixels(image), mask=torch.from_numpy(np.array(mask)))
