"""The order of a training's images, and the batches that loader processes make of them.

The order is detectron2's: consecutive permutations of all images, dealt to the processes in turn
and gathered into batches of one orientation.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.running.loader import load_batches
from pretrain.running.processes import Process
from transfer.datasets.expected import DataError
from transfer.finetuning.schedule import TrainingSchedule
from transfer.frozen.extraction import num_workers

Place = tuple[int, int]
"""Position in the stream of all processes, and number of the image."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """One randomly transformed training image with its labels, or several that are stacked."""

    def to(self, device: torch.device) -> Self:
        """Return the sample on a device; copies from pinned memory are asynchronous."""
        return self._with_each(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> Self:
        """Return the sample in pinned memory, from which a GPU copies asynchronously."""
        return self._with_each(Tensor.pin_memory)

    def _with_each(self, change: Callable[[Tensor], Tensor]) -> Self:
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **{name: change(tensor) for name, tensor in tensors.items()})


AnySample = TypeVar("AnySample", bound=Sample, covariant=True)


@dataclass(frozen=True, eq=False)
class Samples(Generic[AnySample]):
    """Training images with random transformations, drawn by the seed and the place in the stream.

    Neither the number of loader processes nor an interruption therefore changes a pixel.
    """

    num_images: int
    batch: Callable[[Sequence[Place]], Sequence[AnySample]]
    """Function that makes the samples of places; images of one size may be stacked into one."""
    wide: NDArray[np.bool_] | None = None
    """Mask (n,) of the wide images, if a batch may hold one orientation only."""


def shuffled_indices(num_images: int, seed: int, process: Process) -> Iterator[Place]:
    """Yield, without end, the places of the shuffled passes that one process gets.

    DataError for zero images, of which no batch would ever be full.
    """
    if num_images < 1:
        raise DataError("there is no image to train on; expected at least one")
    generator = torch.Generator().manual_seed(seed)
    for turn in count():
        order = torch.randperm(num_images, generator=generator).tolist()
        start = turn * num_images
        first = (process.rank - start) % process.num_processes
        for offset in range(first, num_images, process.num_processes):
            yield start + offset, order[offset]


def batches_of_places(
    stream: Iterator[Place], size: int, wide: NDArray[np.bool_] | None
) -> Iterator[list[Place]]:
    """Yield batches of images that are all wide, or all not, as soon as one is full.

    wide: mask (n,) of the wide images; None: a batch may hold any images.
    """
    waiting: dict[bool, list[Place]] = {True: [], False: []}
    for place in stream:
        key = wide is None or bool(wide[place[1]])
        waiting[key].append(place)
        if len(waiting[key]) == size:
            yield waiting[key]
            waiting[key] = []


def images_per_pass(course: TrainingSchedule, process: Process) -> int:
    """Return the images of one process in one pass; ValueError if the batch does not divide."""
    passes = process.num_processes * course.accumulated
    if course.batch_size < 1:
        raise ValueError(f"a batch of {course.batch_size} images; expected at least one")
    if course.batch_size % passes:
        raise ValueError(
            f"a batch of {course.batch_size} images does not divide by {process.num_processes} "
            f"processes times {course.accumulated} passes; choose numbers that divide it"
        )
    return course.batch_size // passes


@dataclass(frozen=True, kw_only=True, eq=False)
class Stream:
    """The batches of a training, in their order."""

    samples: Samples[Sample]
    course: TrainingSchedule
    seed: int
    process: Process

    def batches(self, passes: range) -> Iterator[list[Sample]]:
        """Yield the batches of these passes for this process, on its device.

        passes: numbers in the whole run, with step 1. Earlier passes are skipped without opening an
        image.
        """
        process = self.process
        places = shuffled_indices(self.samples.num_images, self.seed, process)
        size = images_per_pass(self.course, process)
        workers = num_workers(self.course.iterations * self.course.batch_size)
        loaded = load_batches(
            lambda batch: list(self.samples.batch(batch)),
            islice(batches_of_places(places, size, self.samples.wide), passes.start, passes.stop),
            num_workers=-(-workers // process.num_processes),
        )
        on_gpu = process.device.type == "cuda"
        for batch in loaded:
            own = (sample.pin_memory() if on_gpu else sample for sample in batch)
            yield [sample.to(process.device) for sample in own]

    def seed_draws(self, number: int) -> None:
        """Seed torch's generator, which draws anchors and proposals, for one pass and process."""
        mixed = np.random.SeedSequence([self.seed, number, self.process.rank])
        torch.manual_seed(int(mixed.generate_state(1)[0]))
