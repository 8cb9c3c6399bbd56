"""Which images a training sees, in which order, and the processes that load them.

The order is detectron2's: permutations of all images laid end to end, dealt to the processes in
turn, gathered into batches of one orientation.
"""

from collections.abc import Iterator, Sequence
from itertools import count, islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from transfer.datasets.scenes import Scenes
from transfer.detection.recipe import Recipe
from transfer.detection.sample import Sample
from transfer.detection.samples import training_sample
from transfer.processes import Process

Indices = Sequence[int] | NDArray[np.int64]
Place = tuple[int, int]
"""Position in the stream of all processes, and number of the image."""


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


def images_per_pass(recipe: Recipe, process: Process) -> int:
    """Of one process, in one of the passes that make a step; ValueError if they do not divide."""
    passes = process.num_processes * recipe.accumulated
    if recipe.batch_size % passes:
        raise ValueError(
            f"a batch of {recipe.batch_size} images does not divide by {process.num_processes} "
            f"processes times {recipe.accumulated} passes; choose numbers that divide it"
        )
    return recipe.batch_size // passes


class TrainingSamples(Dataset[Sample]):
    """What is drawn for an image depends on the seed and its place in the stream.

    So neither the number of loading processes nor an interruption changes a pixel.
    """

    def __init__(self, scenes: Scenes, indices: Indices, recipe: Recipe, seed: int) -> None:
        self.scenes, self.recipe, self.seed = scenes, recipe, seed
        self.indices = np.asarray(indices, dtype=np.int64)

    def __getitem__(self, place: Place) -> Sample:
        position, number = place
        index = int(self.indices[number])
        return training_sample(self.scenes, index, self.recipe, (self.seed, position))


def training_batches(
    scenes: Scenes,
    indices: Indices,
    recipe: Recipe,
    *,
    seed: int,
    process: Process,
    passes: range,
    num_workers: int,
) -> Iterator[list[Sample]]:
    """Batches of these passes (step 1, counted over the whole run) for this process.

    Passes before the first are skipped without opening an image. 0 workers load in this process.
    """
    samples = TrainingSamples(scenes, indices, recipe, seed)
    stream = places(len(samples.indices), seed, process)
    wide = scenes.wide[samples.indices] if recipe.group_by_aspect else None
    batches = batches_of_places(stream, images_per_pass(recipe, process), wide)
    loader: DataLoader[Sample] = DataLoader(
        samples,
        batch_sampler=islice(batches, passes.start, passes.stop),
        num_workers=num_workers,
        collate_fn=_as_it_is,
        pin_memory=process.device.type == "cuda",
        # a fork shares the annotations, which spawned processes would each copy
        multiprocessing_context="fork" if num_workers else None,
    )
    yield from loader


def _as_it_is(samples: list[Sample]) -> list[Sample]:
    return samples
