"""Training of a detector: samples, and SGD with detectron2's groups, for the loop of finetuning/.

Weight decay and learning rate depend on the parameter.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import Parameter

from pretrain.running.processes import Process
from transfer.datasets.scenes import Scenes
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.sample import Detector, Sample
from transfer.detection.samples import training_sample
from transfer.finetuning import loop
from transfer.finetuning.gpu import fused, place
from transfer.finetuning.state import TrainingSummary
from transfer.finetuning.stream import Place

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


NORMS = (_BatchNorm, nn.GroupNorm, nn.LayerNorm)


def sgd(detector: Detector, recipe: DetectorRecipe) -> torch.optim.SGD:
    """Return SGD in which norm layers have no weight decay, but biases do.

    If `rpn_gradient` is lr_mult, the RPN learns at a fraction of the rate. A group's "rate_factor"
    is that fraction; `finetuning.schedule.set_rate` multiplies by it.
    """
    groups: dict[tuple[float, float], list[Parameter]] = defaultdict(list)
    seen: set[Parameter] = set()
    for module_name, module in detector.network.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if not parameter.requires_grad or parameter in seen:
                continue
            seen.add(parameter)
            decay = 0.0 if isinstance(module, NORMS) else recipe.weight_decay
            full_name = f"{module_name}.{name}" if module_name else name
            slowed = recipe.rpn_gradient == "lr_mult" and detector.is_rpn(full_name)
            groups[decay, recipe.rpn_gradient_factor if slowed else 1.0].append(parameter)
    return torch.optim.SGD(
        [
            {"params": parameters, "weight_decay": decay, "rate_factor": factor}
            for (decay, factor), parameters in groups.items()
        ],
        lr=recipe.learning_rate,
        momentum=recipe.sgd_momentum,
        fused=fused(detector.network),
    )
