"""Random crops of training images, and the order of the images.

Each crop depends only on the seed and its number in the run, so neither the number of loader
processes nor an interruption changes a pixel. The crops of pre-training differ: see
pretrain/data/views.py. Loader processes send crops as bytes; each network normalizes them on the
device.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from pretrain.pixels.boxes import draw_box
from pretrain.pixels.crops import crop, orient
from pretrain.running.loader import load_batches
from transfer.datasets.images import Images
from transfer.frozen.extraction import num_workers
from transfer.frozen.image_cache import with_cached_pixels
from transfer.frozen.network import device
from transfer.frozen.probe_training import Labels, ProbeTraining
from transfer.frozen.transforms import QUARTER_TURNS

CROPS_VERSION = "crops/2"
"""Version of random crops; part of the hash of a training.

crops/1 used Pillow. crops/2 have the same boxes, flips and rotations; their 8-bit values differ
from Pillow's by at most 2. In 331 natural images, 3 % of the values differ.
"""
SEED_STRIDE = 2_654_435_769
"""2^32 divided by the golden ratio; multiples modulo 2^32 are far apart."""

Draw = tuple[int, int]
"""Number of the crop in the run, and index of the image."""
Crops = tuple[Tensor, Tensor]
"""Pixels (n, 3, H, W) and labels (n,)."""


def draw_seed(seed: int, number: int) -> int:
    """Return the 32-bit seed of draw `number` of a run.

    torch's CPU generator ignores other bits. Seed 0 uses `number`; other seeds add an offset.
    """
    return (number + seed * SEED_STRIDE) % 2**32


class RandomCrops:
    """Random crops with random horizontal flips.

    Crops have 8 to 100 % of the area (torchvision's default). With labels "rotations", each crop is
    rotated by a random multiple of 90 degrees, its label.
    """

    def __init__(self, images: Images, px: int, seed: int, labels: Labels = "classes") -> None:
        self.images, self.px, self.seed, self.labels = images, px, seed, labels
        self.read = images.source.read
        self.generator = torch.Generator()

    def __call__(self, draws: Sequence[Draw]) -> Crops:
        """Return pixels (n, 3, px, px) uint8, channels last, and labels (n,)."""
        pixels = np.empty((len(draws), self.px, self.px, 3), dtype=np.uint8)
        rotations = []
        for (number, index), out in zip(draws, pixels, strict=True):
            image = self.read(index)
            # torchvision draws box, flip and rotation in this order
            generator = self.generator.manual_seed(draw_seed(self.seed, number))
            box = draw_box(generator, *image.shape[:2])
            flip, quarters = bool(torch.rand(1, generator=generator) < 0.5), 0
            if self.labels == "rotations":
                quarters = int(torch.randint(QUARTER_TURNS, (), generator=generator))
            # flip first: a flip after the rotation would change its direction
            out[:] = orient(crop(image, box, self.px), flip=flip, quarters=quarters)
            rotations.append(quarters)
        labels = torch.tensor(rotations)
        if self.labels == "classes":
            labels = self.images.labels[[index for _, index in draws]]
        return torch.from_numpy(pixels).permute(0, 3, 1, 2), labels


def crop_batches(
    images: Images,
    training: ProbeTraining,
    seed: int,
    batch_size: int,
    steps: range,
) -> Iterator[Crops]:
    """Yield pixels (n, 3, px, px) uint8 of each step, and its labels on the device.

    Decoded images are cached if they fit into memory and are used often enough. This changes no
    pixel.
    """
    target_device = device()

    def pin(batch: Crops) -> Crops:
        return batch[0].pin_memory(), batch[1].pin_memory()

    num_crops = len(steps) * batch_size
    crops = RandomCrops(
        with_cached_pixels(images, num_crops), training.crop_px, seed, training.labels
    )
    batches = load_batches(
        crops,
        batch_draws(len(images), batch_size, seed, steps),
        num_workers=num_workers(num_crops),
        pin_memory=pin if target_device.type == "cuda" else None,
    )
    for pixels, labels in batches:
        yield pixels, labels.to(target_device, non_blocking=True)


def batch_draws(num_images: int, batch_size: int, seed: int, steps: range) -> Iterator[list[Draw]]:
    """Yield the crops of each batch, reshuffled in each epoch.

    Every batch is full, so a batch may span two epochs.
    """
    current, order = -1, list[int]()
    for step in steps:
        draws = []
        for number in range(step * batch_size, (step + 1) * batch_size):
            epoch, offset = divmod(number, num_images)
            if epoch != current:
                generator = torch.Generator().manual_seed(draw_seed(seed, epoch))
                current, order = epoch, torch.randperm(num_images, generator=generator).tolist()
            draws.append((number, order[offset]))
        yield draws
