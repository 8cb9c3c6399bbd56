"""Training of a detector: samples and optimizer, passed to the loop of finetuning/."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transfer.datasets.scenes import Scenes
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.sample import Detector, Sample
from transfer.detection.samples import training_sample
from transfer.detection.solver import sgd
from transfer.finetuning import loop
from transfer.finetuning.gpu import place
from transfer.finetuning.state import TrainingSummary
from transfer.finetuning.stream import Place
from transfer.running.processes import Process

Indices = Sequence[int] | NDArray[np.int64]


class TrainingSamples:
    """The `finetuning.stream.Samples` of the images at these indices."""

    def __init__(self, scenes: Scenes, indices: Indices, recipe: DetectorRecipe, seed: int) -> None:
        self.scenes, self.recipe, self.seed = scenes, recipe, seed
        self.indices = np.asarray(indices, dtype=np.int64)
        self.wide = scenes.wide[self.indices] if recipe.group_by_aspect else None

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, place: Place) -> Sample:
        position, number = place
        index = int(self.indices[number])
        return training_sample(self.scenes, index, self.recipe, (self.seed, position))

    def batch(self, places: Sequence[Place]) -> list[Sample]:
        """Return the samples of these places, each of its own size."""
        return [self[place] for place in places]


def train(
    detector: Detector,
    scenes: Scenes,
    indices: Indices,
    recipe: DetectorRecipe,
    *,
    seed: int,
    folder: Path,
    process: Process,
    num_workers: int | None = None,
    name: str = "",
) -> TrainingSummary:
    """Train a detector on the images at these indices; see `finetuning.loop.train`."""
    place(detector.network, process.device)
    return loop.train(
        detector.network,
        sgd(detector, recipe),
        TrainingSamples(scenes, indices, recipe, seed),
        recipe,
        seed=seed,
        folder=folder,
        process=process,
        num_workers=num_workers,
        name=name or recipe.finds,
    )
