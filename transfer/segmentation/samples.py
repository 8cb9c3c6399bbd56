"""From an image and its mask to what the network learns from: scaled, flipped, cropped.

The scale is of the original image, as MoCo has it; mmsegmentation's RandomResize is of a fixed
short side instead, and its VOC pipelines add distortions of color, which MoCo has not. Pillow
filters where it shrinks an image; OpenCV, which mmsegmentation uses, would skip pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from transfer.datasets.segmented import Segmented
from transfer.finetuning.stream import Place
from transfer.segmentation.recipe import SegmentationRecipe


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """A crop and the classes of its pixels; smaller than the crop's side where the image is."""

    image: Tensor
    """(3, H, W) uint8, RGB."""
    mask: Tensor
    """(H, W) uint8: classes, 255 where nothing is learned."""

    def to(self, device: torch.device) -> "Sample":
        """Its tensors on a device, copied while the processor goes on where they are pinned."""
        return Sample(
            image=self.image.to(device, non_blocking=True),
            mask=self.mask.to(device, non_blocking=True),
        )

    def pin_memory(self) -> "Sample":
        """Its tensors where a GPU can fetch them."""
        return Sample(image=self.image.pin_memory(), mask=self.mask.pin_memory())


class TrainingSamples:
    """As `training.stream.Samples` says, of all images of a split."""

    wide = None
    """Crops have one size, whatever the image's shape."""

    def __init__(self, split: Segmented, recipe: SegmentationRecipe, seed: int) -> None:
        self.split, self.recipe, self.seed = split, recipe, seed

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, place: Place) -> Sample:
        position, index = place
        return training_sample(self.split, index, self.recipe, (self.seed, position))


def training_sample(
    split: Segmented, index: int, recipe: SegmentationRecipe, seed: int | Sequence[int]
) -> Sample:
    """A crop as the seed (one number or several) has it."""
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
    """(3, H, W) uint8 of an RGB image."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
