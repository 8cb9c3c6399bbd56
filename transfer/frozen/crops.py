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
from pretrain.pixels.decoding import Pixels
from pretrain.running.loader import load_batches
from transfer.backbone import InputFormat
from transfer.datasets.images import Images
from transfer.frozen.extraction import num_workers
from transfer.frozen.probe_training import Labels
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
    """Batches of crops of images: 8 to 100 % of the area (torchvision's default), flip, and turn.

    For labels "rotations" each crop is turned by a drawn number of quarters, which is its label.
    """

    def __init__(self, images: Images, px: int, seed: int, labels: Labels = "classes") -> None:
        self.images, self.px, self.seed, self.labels = images, px, seed, labels
        self.read = images.source.read
        self.generator = torch.Generator()

    def __call__(self, places: Sequence[Place]) -> Crops:
        """Return pixels (n, 3, px, px) uint8, channels last, and labels (n,)."""
        pixels = np.empty((len(places), self.px, self.px, 3), dtype=np.uint8)
        turns = [
            self.write(self.read(index), draw_seed(self.seed, position), out)
            for (position, index), out in zip(places, pixels, strict=True)
        ]
        labels = self.images.labels[[index for _, index in places]]
        if self.labels == "rotations":
            labels = torch.tensor(turns)
        return torch.from_numpy(pixels).permute(0, 3, 1, 2), labels

    def write(self, pixels: Pixels, seed: int, out: Pixels) -> int:
        """Write the crop that this seed draws into `out` (px, px, 3); return its quarter turns."""
        generator = self.generator.manual_seed(seed)
        box = draw_box(generator, *pixels.shape[:2])
        flip, quarters = bool(torch.rand(1, generator=generator) < 0.5), 0
        if self.labels == "rotations":
            quarters = int(torch.randint(QUARTER_TURNS, (), generator=generator))
        # the flip comes first: flipping afterwards would change one quarter turn into three
        orient(crop(pixels, box, self.px), flip=flip, quarters=quarters, out=out)
        return quarters


def crop_batches(
    crops: RandomCrops, form: InputFormat, batch_size: int, steps: range, where: torch.device
) -> Iterator[Crops]:
    """Yield the batch of each step on the device: normalized pixels and labels."""
    normalize = Normalization(form, where)
    batches = load_batches(
        crops,
        batch_places(len(crops.images), batch_size, crops.seed, steps),
        num_workers=num_workers(len(steps) * batch_size),
        pin=_pinned if where.type == "cuda" else None,
    )
    for pixels, labels in batches:
        yield normalize(pixels), labels.to(where, non_blocking=True)


def _pinned(made: Crops) -> Crops:
    return made[0].pin_memory(), made[1].pin_memory()


def batch_places(
    num_images: int, batch_size: int, seed: int, steps: range
) -> Iterator[list[Place]]:
    """Yield the images of each batch, from consecutive, reshuffled passes over the set.

    Every batch is full; if the batch size does not divide the set, a batch may span two passes.
    """
    known, order = -1, [0]
    for step in steps:
        batch = []
        for place in range(step * batch_size, (step + 1) * batch_size):
            turn, offset = divmod(place, num_images)
            if turn != known:
                generator = torch.Generator().manual_seed(draw_seed(seed, turn))
                known, order = turn, torch.randperm(num_images, generator=generator).tolist()
            batch.append((place, order[offset]))
        yield batch
