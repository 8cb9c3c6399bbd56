"""Random crops of training images, and the images of each batch.

All draws depend only on the seed and the position in the run, so neither the number of loader
processes nor an interruption changes a pixel. Pre-training draws its own:
pretrain/data/views.py. Crops travel as bytes and are normalized on the device.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.pixels.boxes import Box, draw_box
from pretrain.pixels.crops import crop, crop_one, orient
from pretrain.running.loader import load_batches
from transfer.datasets.images import Images
from transfer.encoders.encoder import InputFormat
from transfer.frozen.extraction import num_workers
from transfer.frozen.kept_images import KeptFiles, PixelBlock, with_kept_pixels
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
MOST_OF_FREE = 0.25
"""Share of a GPU's free memory that kept images may take."""

Place = tuple[int, int]
"""Position in the run, and index of the image."""
Crops = tuple[Tensor, Tensor]
"""Pixels (n, 3, H, W) and labels (n,)."""
Maker = Literal["host", "device"]
"""Processor that makes the crops. Their levels may differ by 1, so a training keeps to one."""


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

    def draw(self, position: int, size: Sequence[int]) -> tuple[Box, bool, int]:
        """Return box, flip and counterclockwise quarter turns after it, as torchvision draws them.

        position: that in the run. size: height and width of the image.
        """
        generator = self.generator.manual_seed(draw_seed(self.seed, position))
        box = draw_box(generator, size[0], size[1])
        flip = bool(torch.rand(1, generator=generator) < 0.5)
        if self.labels == "classes":
            return box, flip, 0
        return box, flip, int(torch.randint(QUARTER_TURNS, (), generator=generator))

    def __call__(self, places: Sequence[Place]) -> Crops:
        """Return pixels (n, 3, px, px) uint8, channels last, and labels (n,)."""
        pixels = np.empty((len(places), self.px, self.px, 3), dtype=np.uint8)
        turns = []
        for (position, index), out in zip(places, pixels, strict=True):
            image = self.read(index)
            box, flip, quarters = self.draw(position, image.shape)
            # the flip comes first: flipping afterwards would change one quarter turn into three
            orient(crop(image, box, self.px), flip=flip, quarters=quarters, out=out)
            turns.append(quarters)
        return torch.from_numpy(pixels).permute(0, 3, 1, 2), self._labels(places, turns)

    def draws(self, places: Sequence[Place], sizes: NDArray[np.int64]) -> Crops:
        """Return views (n, 7): index, box, flip, quarter turns; and labels (n,).

        sizes: heights and widths (N, 2) of all images.
        """
        views = self._views(places, sizes)
        return views, self._labels(places, views[:, 6].tolist())

    def uploads(self, places: Sequence[Place]) -> tuple[Tensor, ...]:
        """Return views (n, 7) of the batch's images, labels (n,), sizes (n, 2), and all pixels."""
        found = [self.read(index) for _, index in places]
        sizes = np.array([pixels.shape[:2] for pixels in found])
        views = self._views([(place[0], row) for row, place in enumerate(places)], sizes)
        labels = self._labels(places, views[:, 6].tolist())
        pixels = np.concatenate([pixels.ravel() for pixels in found])
        return views, labels, torch.from_numpy(sizes), torch.from_numpy(pixels)

    def _views(self, places: Sequence[Place], sizes: NDArray[np.int64]) -> Tensor:
        drawn = [(i, *self.draw(position, sizes[i].tolist())) for position, i in places]
        return torch.tensor([[i, *box, int(flip), turns] for i, box, flip, turns in drawn])

    def _labels(self, places: Sequence[Place], turns: list[int]) -> Tensor:
        if self.labels == "rotations":
            return torch.tensor(turns)
        return self.images.labels[[index for _, index in places]]


def device_crops(block: PixelBlock[Tensor], views: Tensor, px: int) -> Tensor:
    """Return crops (n, 3, px, px) uint8 of images on a device, by views (n, 7) on the host."""
    crops = [crop_one(block.read(index), box, px) for index, *box, _, _ in views.tolist()]
    pixels = torch.stack(crops)
    there = views.to(pixels.device, non_blocking=True)
    # where, not a masked assignment: the host would wait for the number of masked rows
    pixels = torch.where((there[:, 5] == 1)[:, None, None, None], pixels.flip(3), pixels)
    for quarters in (1, 2, 3):
        # asked of the host's copy; the answer of a GPU would have to be waited for
        if bool((views[:, 6] == quarters).any()):
            turned = (there[:, 6] == quarters)[:, None, None, None]
            pixels = torch.where(turned, pixels.rot90(quarters, (2, 3)), pixels)
    return pixels.to(torch.uint8).contiguous(memory_format=torch.channels_last)


def fits_on(num_bytes: int, where: torch.device) -> bool:
    """Return whether a device is a GPU with room for the pixels of kept images."""
    return where.type == "cuda" and num_bytes <= MOST_OF_FREE * torch.cuda.mem_get_info(where)[0]


class CropSource:
    """Random crops of images: which processor cuts them, and where decoded pixels are kept.

    Images that are kept on a GPU are cropped there; all others by the processes of a loader, unless
    the training began on a GPU.
    """

    def __init__(
        self,
        images: Images,
        training: ProbeTraining,
        seed: int,
        crops: int,
        remaining: int,
        began: Maker | None = None,
    ) -> None:
        """Keep the images decoded if that pays and they fit.

        crops, remaining: crops of the whole training, and of what is left of it. began: processor
        that made its first crops; it makes all others, too, whatever memory is free now.
        """
        self.where, self.px = device(), training.crop_px
        # a resumed training must not choose by what is left of it
        kept = with_kept_pixels(images, crops if began is None else remaining)
        files = kept.source
        block = files.kept if kept is not images and isinstance(files, KeptFiles) else None
        fits = block is not None and fits_on(len(block.pixels), self.where)
        self.maker: Maker = began or ("device" if fits else "host")
        self.on_device: PixelBlock[Tensor] | None = None
        if block is not None and fits and self.maker == "device":
            there = torch.from_numpy(block.pixels).to(self.where)
            self.on_device = PixelBlock(block.sizes, there)
            kept = images  # a GPU that holds the images spares the host's memory
        self.crops = RandomCrops(kept, self.px, seed, training.labels)

    def batches(self, form: InputFormat, batch_size: int, steps: range) -> Iterator[Crops]:
        """Yield the batch of each step on the device: normalized pixels and labels."""
        normalize = Normalization(form, self.where)
        work: Callable[[list[Place]], tuple[Tensor, ...]] = self.crops
        if self.on_device is not None:
            work = partial(self.crops.draws, sizes=self.on_device.sizes)
        elif self.maker == "device":
            work = self.crops.uploads
        batches = load_batches(
            work,
            batch_places(len(self.crops.images), batch_size, self.crops.seed, steps),
            num_workers=num_workers(len(steps) * batch_size),
            pin=pin if self.where.type == "cuda" else None,
        )
        for made in batches:
            labels = made[1].to(self.where, non_blocking=True)
            yield normalize(self._pixels(made)), labels

    def _pixels(self, made: Sequence[Tensor]) -> Tensor:
        """Return the crops (n, 3, px, px) uint8 of what the loader processes made."""
        if self.maker == "host":
            return made[0]
        block = self.on_device or PixelBlock(made[2].numpy(), made[3].to(self.where))
        return device_crops(block, made[0], self.px)


def pin(made: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return tensors in memory from which a GPU copies without a wait."""
    return tuple(tensor.pin_memory() for tensor in made)


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
