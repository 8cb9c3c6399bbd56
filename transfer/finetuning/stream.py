"""The order of the training images, and their batches.

The order is the same as in detectron2: consecutive permutations of all images, distributed among
the processes and grouped into batches of one orientation.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from pretrain.running.loader import load_batches
from pretrain.running.processes import Process
from transfer.datasets.expected import DataError
from transfer.datasets.images import ImageSplit
from transfer.finetuning.schedule import TrainingSchedule
from transfer.frozen.extraction import num_workers

StreamItem = tuple[int, int]
"""Position in the stream of all processes, and index of the image."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """One or several (stacked) randomly transformed training images with labels."""

    def to(self, device: torch.device) -> Self:
        """Copy the sample to a device, asynchronously from pinned memory."""
        return self._map_tensors(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> Self:
        """Copy the sample to pinned memory."""
        return self._map_tensors(Tensor.pin_memory)

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> Self:
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **{name: change(tensor) for name, tensor in tensors.items()})


AnySample = TypeVar("AnySample", bound=Sample, covariant=True)


@dataclass(frozen=True, eq=False)
class Samples(Generic[AnySample]):
    """Training images with random transformations.

    Transformations only depend on the seed and the position in the stream, so neither the number of
    loader processes nor an interruption changes a pixel.
    """

    num_images: int
    batch: Callable[[Sequence[StreamItem]], Sequence[AnySample]]
    """Creates the samples of items; samples of one size may be stacked."""
    is_landscape: NDArray[np.bool_] | None = None
    """(n,) bool: width > height. None: batches may mix orientations."""


def pixels(image: Image.Image) -> Tensor:
    """Return the pixels (3, H, W) uint8 of an RGB image."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def single_samples(
    images: ImageSplit,
    sample: Callable[[Any, int, Any, tuple[int, int]], AnySample],
    recipe: object,
    seed: int,
    is_landscape: NDArray[np.bool_] | None = None,
) -> Samples[AnySample]:
    """Return the samples of all images of a split, which are created one by one.

    sample: function of the split, an image's index, the recipe, and two numbers as seed.
    """

    def batch(items: Sequence[StreamItem]) -> list[AnySample]:
        return [sample(images, index, recipe, (seed, position)) for position, index in items]

    return Samples(len(images), batch, is_landscape)


def shuffled_indices(num_images: int, seed: int, process: Process) -> Iterator[StreamItem]:
    """Yield one process's items of infinitely many shuffled epochs.

    Raises DataError if there are no images.
    """
    if num_images < 1:
        raise DataError("no training images; expected at least one")
    generator = torch.Generator().manual_seed(seed)
    for epoch in count():
        order = torch.randperm(num_images, generator=generator).tolist()
        start = epoch * num_images
        first = (process.rank - start) % process.num_processes
        for offset in range(first, num_images, process.num_processes):
            yield start + offset, order[offset]


def batches_of_items(
    stream: Iterator[StreamItem], size: int, is_landscape: NDArray[np.bool_] | None
) -> Iterator[list[StreamItem]]:
    """Yield batches of one orientation, as soon as one is full.

    is_landscape: (n,) bool, width > height; None: do not separate orientations.
    """
    waiting: dict[bool, list[StreamItem]] = {True: [], False: []}
    for item in stream:
        key = is_landscape is None or bool(is_landscape[item[1]])
        waiting[key].append(item)
        if len(waiting[key]) == size:
            yield waiting[key]
            waiting[key] = []


@dataclass(frozen=True, kw_only=True, eq=False)
class Stream:
    """The sequence of batches of a training."""

    samples: Samples[Sample]
    schedule: TrainingSchedule
    seed: int
    process: Process

    def batches(self, indices: range) -> Iterator[list[Sample]]:
        """Yield micro-batches of this process, on its device.

        indices: range of micro-batch indices, counted from the start of training. Earlier
        micro-batches are skipped without opening an image.
        """
        process = self.process
        items = shuffled_indices(self.samples.num_images, self.seed, process)
        # the options make sure that the batch is divisible
        size = self.schedule.batch_size // (process.num_processes * self.schedule.accumulated)
        num_images = self.schedule.iterations * self.schedule.batch_size
        loaded = load_batches(
            lambda batch: list(self.samples.batch(batch)),
            islice(
                batches_of_items(items, size, self.samples.is_landscape),
                indices.start,
                indices.stop,
            ),
            num_workers=num_workers(num_images // process.num_processes),
        )
        on_gpu = process.device.type == "cuda"
        for batch in loaded:
            pinned = (sample.pin_memory() if on_gpu else sample for sample in batch)
            yield [sample.to(process.device) for sample in pinned]

    def seed_micro_batch(self, index: int) -> None:
        """Seed torch's generator, which samples anchors and proposals, for a micro-batch."""
        seeds = np.random.SeedSequence([self.seed, index, self.process.rank])
        torch.manual_seed(int(seeds.generate_state(1)[0]))
