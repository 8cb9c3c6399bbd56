"""Random crops of training images, and the images of each batch.

All draws depend only on the seed and the position in the run, so neither the number of loader
processes nor an interruption changes a pixel. Pre-training draws its own:
pretrain/data/views.py. Crops travel as bytes and are normalized on the device.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from pretrain.pixels.boxes import draw_box
from pretrain.pixels.crops import crop, orient
from pretrain.running.loader import load_batches
from transfer.datasets.images import Images
from transfer.encoders.encoder import InputFormat
from transfer.frozen.extraction import num_workers
from transfer.frozen.kept_images import with_kept_pixels
from transfer.frozen.network import device
from transfer.frozen.probe_training import Labels, ProbeTraining
from transfer.frozen.transforms import QUARTER_TURNS, Normalization

CROPS = "crops/2"
"""Version of the pixels of random crops; it is part of the identity of a training.

crops/1 were Pillow's. crops/2 have the same boxes, flips and turns; their levels, of which there
are 256, differ from Pillow's by at most 2. Of the values of 331 photographs 3 % differ.
"""
SEED_STRIDE = 2_654_435_769
"""2^32 divided by the golden ratio; its multiples modulo 2^32 are far apart."""

Place = tuple[int, int]
"""Position in the run, and index of the image."""
Crops = tuple[Tensor, Tensor]
"""Pixels (n, 3, H, W) and labels (n,)."""


def draw_seed(seed: int, number: int) -> int:
    """Return the 32-bit seed of draw `number` of a run; torch's CPU generator ignores other bits.

    Seed 0 uses the numbers themselves; every other seed adds an offset.
    """
    return (number + seed * SEED_STRIDE) % 2**32


class RandomCrops:
    """Random crops of images, by their places: of 8 to 100 % (torchvision's default), flipped.

    For the labels "rotations" each is turned by a drawn number of quarters, which is its label.
    """

    def __init__(self, images: Images, px: int, seed: int, labels: Labels = "classes") -> None:
        self.images, self.px, self.seed, self.labels = images, px, seed, labels
        self.read = images.source.read
        self.generator = torch.Generator()

    def __call__(self, places: Sequence[Place]) -> Crops:
        """Return pixels (n, 3, px, px) uint8, channels last, and labels (n,)."""
        pixels = np.empty((len(places), self.px, self.px, 3), dtype=np.uint8)
        turns = []
        for (position, index), out in zip(places, pixels, strict=True):
            image = self.read(index)
            # box, flip and quarter turns are drawn in this order, as torchvision draws them
            generator = self.generator.manual_seed(draw_seed(self.seed, position))
            box = draw_box(generator, *image.shape[:2])
            flip, quarters = bool(torch.rand(1, generator=generator) < 0.5), 0
            if self.labels == "rotations":
                quarters = int(torch.randint(QUARTER_TURNS, (), generator=generator))
            # the flip comes first: flipping afterwards would change one quarter turn into three
            orient(crop(image, box, self.px), flip=flip, quarters=quarters, out=out)
            turns.append(quarters)
        labels = torch.tensor(turns)
        if self.labels == "classes":
            labels = self.images.labels[[index for _, index in places]]
        return torch.from_numpy(pixels).permute(0, 3, 1, 2), labels


def crop_batches(
    images: Images,
    training: ProbeTraining,
    seed: int,
    form: InputFormat,
    batch_size: int,
    steps: range,
) -> Iterator[Crops]:
    """Yield the batch of each step on the device: normalized pixels and labels.

    The images are kept decoded if that pays for these steps and they fit into memory, which changes
    no pixel.
    """
    where = device()
    normalize = Normalization(form, where)
    num_crops = len(steps) * batch_size
    crops = RandomCrops(
        with_kept_pixels(images, num_crops), training.crop_px, seed, training.labels
    )
    batches = load_batches(
        crops,
        batch_places(len(images), batch_size, seed, steps),
        num_workers=num_workers(num_crops),
        pin_memory=_pin if where.type == "cuda" else None,
    )
    for pixels, labels in batches:
        yield normalize(pixels), labels.to(where, non_blocking=True)


def _pin(crops: Crops) -> Crops:
    """Return crops in memory from which a GPU copies without a wait."""
    return crops[0].pin_memory(), crops[1].pin_memory()


def batch_places(
    num_images: int, batch_size: int, seed: int, steps: range
) -> Iterator[list[Place]]:
    """Yield the images of each batch, from consecutive, reshuffled passes over the set.

    Every batch is full; if the batch size does not divide the set, a batch may span two passes.
    """
    turn, order = -1, list[int]()
    for step in steps:
        places = []
        for place in range(step * batch_size, (step + 1) * batch_size):
            passes, offset = divmod(place, num_images)
            if passes != turn:
                generator = torch.Generator().manual_seed(draw_seed(seed, passes))
                turn, order = passes, torch.randperm(num_images, generator=generator).tolist()
            places.append((place, order[offset]))
        yield places
