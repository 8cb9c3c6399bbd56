"""The order of a training's images, and the batches that loader processes make of them.

The order is detectron2's: consecutive permutations of all images, dealt to the processes in turn
and gathered into batches of one orientation.
"""

from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from pretrain.running.loader import load_batches
from pretrain.running.processes import Process
from transfer.finetuning.schedule import TrainingSchedule

Place = tuple[int, int]
"""Position in the stream of all processes, and number of the image."""


class Sample(Protocol):
    """One randomly transformed training image with its labels, or several that are stacked."""

    def to(self, device: torch.device) -> Self:
        """Return the sample with its tensors on a device."""

    def pin_memory(self) -> Self:
        """Return the sample with its tensors in pinned memory."""


S = TypeVar("S", bound=Sample)
S_co = TypeVar("S_co", bound=Sample, covariant=True)


class Samples(Protocol[S_co]):
    """Training images with random transformations, drawn by the seed and the place in the stream.

    Neither the number of loader processes nor an interruption therefore changes a pixel.
    """

    @property
    def wide(self) -> NDArray[np.bool_] | None:
        """Mask (n,) of the wide images, if a batch may hold one orientation only; else None."""

    def __len__(self) -> int: ...

    def batch(self, places: Sequence[Place]) -> Sequence[S_co]:
        """Return the samples of these places; images of one size may be stacked into one."""


def shuffled_indices(num_images: int, seed: int, process: Process) -> Iterator[Place]:
    """Yield, without end, the places of the shuffled passes that one process gets."""
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
    if course.batch_size % passes:
        raise ValueError(
            f"a batch of {course.batch_size} images does not divide by {process.num_processes} "
            f"processes times {course.accumulated} passes; choose numbers that divide it"
        )
    return course.batch_size // passes


def training_batches(
    samples: Samples[S],
    course: TrainingSchedule,
    *,
    seed: int,
    process: Process,
    passes: range,
    num_workers: int,
) -> Iterator[list[S]]:
    """Yield the batches of these passes for this process.

    passes: numbers in the whole run, with step 1. Earlier passes are skipped without opening an
    image. With 0 workers, this process loads the images.
    """
    stream = shuffled_indices(len(samples), seed, process)
    batches = batches_of_places(stream, images_per_pass(course, process), samples.wide)
    return load_batches(
        lambda batch: list(samples.batch(batch)),
        islice(batches, passes.start, passes.stop),
        num_workers=num_workers,
        pin=_pinned if process.device.type == "cuda" else None,
    )


def _pinned(samples: list[S]) -> list[S]:
    return [sample.pin_memory() for sample in samples]
