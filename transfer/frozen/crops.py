"""Random crops of training images, and the images of each batch.

All draws depend only on the seed and the position in the run, so neither the number of loader
processes nor an interruption changes a pixel. Pre-training draws its own:
pretrain/data/random_numbers.py.
"""

from collections.abc import Iterator

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import v2

from transfer.backbone import InputFormat
from transfer.datasets.images import Images
from transfer.frozen.extraction import num_workers
from transfer.frozen.probe_training import Labels
from transfer.frozen.transforms import QUARTER_TURNS, normalize_image, rotate_quarters
from transfer.running.loader import load_batches

SEED_STRIDE = 2_654_435_769
"""2^32 divided by the golden ratio; its multiples modulo 2^32 are far apart."""


def draw_seed(seed: int, number: int) -> int:
    """Return the 32-bit seed of draw `number` of a run; torch's CPU generator ignores other bits.

    Seed 0 uses the numbers themselves; every other seed adds an offset.
    """
    return (number + seed * SEED_STRIDE) % 2**32


class RandomView:
    """Random crop of 8 to 100 % of the area (torchvision's default), flip, and rotation if set."""

    def __init__(self, *, px: int, labels: Labels = "classes") -> None:
        self.crop = v2.RandomResizedCrop(px, antialias=True)
        self.flip = v2.RandomHorizontalFlip()
        self.labels = labels

    def __call__(self, image: Image.Image, label: int, seed: int) -> tuple[Image.Image, int]:
        """Return the view that this seed draws, and its label."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            view: Image.Image = self.flip(self.crop(image))
            if self.labels == "classes":
                return view, label
            # after the flip: flipping afterwards would change one quarter turn into three
            quarters = int(torch.randint(QUARTER_TURNS, ()))
        return rotate_quarters(view, quarters), quarters


class RandomCrops(Dataset[tuple[Tensor, Tensor]]):
    """Normalized views of images, indexed by (position in the run, index of the image)."""

    def __init__(self, images: Images, view: RandomView, form: InputFormat, seed: int) -> None:
        self.images, self.view, self.form, self.seed = images, view, form, seed

    def __getitem__(self, place: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Return pixels (3, H, W) and label; place: position in the run, index of the image."""
        position, index = place
        image, label = self.images[index]
        view, label = self.view(image, label, draw_seed(self.seed, position))
        return normalize_image(view, self.form), torch.as_tensor(label)


def crop_batches(
    images: Images, view: RandomView, form: InputFormat, seed: int, batch_size: int, steps: range
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the batch of each step: pixels (n, 3, H, W) and labels (n,)."""
    crops = RandomCrops(images, view, form, seed)

    def crop(places: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        pixels, labels = zip(*(crops[place] for place in places), strict=True)
        return torch.stack(pixels), torch.stack(labels)

    places = BatchIndices(len(images), batch_size, seed, steps)
    return load_batches(crop, places, num_workers=num_workers(len(steps) * batch_size))


class BatchIndices:
    """The images of each batch, from consecutive, reshuffled passes over the set.

    Every batch is full; if the batch size does not divide the set, a batch may span two passes.
    """

    def __init__(self, num_images: int, batch_size: int, seed: int, steps: range) -> None:
        self.num_images, self.batch_size = num_images, batch_size
        self.seed, self.steps = seed, steps
        self.turn, self.order = -1, [0]

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for step in self.steps:
            first = step * self.batch_size
            yield [(place, self._index(place)) for place in range(first, first + self.batch_size)]

    def _index(self, place: int) -> int:
        turn, offset = divmod(place, self.num_images)
        if turn != self.turn:
            generator = torch.Generator().manual_seed(draw_seed(self.seed, turn))
            self.order = torch.randperm(self.num_images, generator=generator).tolist()
            self.turn = turn
        return self.order[offset]
