"""Which images a training sees, in which order, and the processes that load them.

The order is detectron2's: permutations of all images laid end to end, dealt to the processes in
turn, gathered into batches of one orientation.
"""

from collections.abc import Iterator
from itertools import count, islice
from typing import Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from transfer.finetuning.schedule import Course
from transfer.running.loader import load_batches
from transfer.running.processes import Process

Place = tuple[int, int]
"""Position in the stream of all processes, and number of the image."""


class Sample(Protocol):
    """What is drawn of one image."""

    def to(self, device: torch.device) -> Self:
        """Its tensors on a device."""

    def pin_memory(self) -> Self:
        """Its tensors where a GPU can fetch them."""


S = TypeVar("S", bound=Sample)
S_co = TypeVar("S_co", bound=Sample, covariant=True)


class Samples(Protocol[S_co]):
    """Training images. What is drawn for one depends on the seed and its place in the stream.

    So neither the number of loading processes nor an interruption changes a pixel.
    """

    @property
    def wide(self) -> NDArray[np.bool_] | None:
        """(n,), where batches are to hold only wide or only other images."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: Place) -> S_co: ...


def places(num_images: int, seed: int, process: Process) -> Iterator[Place]:
    """Without end: what one process gets of the shuffled passes."""
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
    """Batches of images that are all wide (or all not), as soon as one is full; None: of any."""
    waiting: dict[bool, list[Place]] = {True: [], False: []}
    for place in stream:
        key = wide is None or bool(wide[place[1]])
        waiting[key].append(place)
        if len(waiting[key]) == size:
            yield waiting[key]
            waiting[key] = []


def images_per_pass(course: Course, process: Process) -> int:
    """Of one process, in one of the passes that make a step; ValueError if they do not divide."""
    passes = process.num_processes * course.accumulated
    if course.batch_size % passes:
        raise ValueError(
            f"a batch of {course.batch_size} images does not divide by {process.num_processes} "
            f"processes times {course.accumulated} passes; choose numbers that divide it"
        )
    return course.batch_size // passes


def training_batches(
    samples: Samples[S],
    course: Course,
    *,
    seed: int,
    process: Process,
    passes: range,
    num_workers: int,
) -> Iterator[list[S]]:
    """Batches of these passes (step 1, counted over the whole run) for this process.

    Passes before the first are skipped without opening an image. 0 workers load in this process.
    """
    stream = places(len(samples), seed, process)
    batches = batches_of_places(stream, images_per_pass(course, process), samples.wide)
    return load_batches(
        lambda batch: [samples[place] for place in batch],
        islice(batches, passes.start, passes.stop),
        num_workers=num_workers,
        pin=_pinned if process.device.type == "cuda" else None,
    )


def _pinned(samples: list[S]) -> list[S]:
    return [sample.pin_memory() for sample in samples]
