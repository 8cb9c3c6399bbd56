"""Training of a segmentation network: samples and optimizer, passed to the loop of finetuning/."""

from pathlib import Path

import torch

from transfer.datasets.segmented import Segmented
from transfer.finetuning import loop
from transfer.finetuning.gpu import fused, place
from transfer.finetuning.state import TrainingSummary
from transfer.running.processes import Process
from transfer.segmentation.network import FCN
from transfer.segmentation.recipe import SegmentationRecipe
from transfer.segmentation.samples import TrainingSamples


def train(
    network: FCN,
    split: Segmented,
    recipe: SegmentationRecipe,
    *,
    seed: int,
    folder: Path,
    process: Process,
    num_workers: int | None = None,
) -> TrainingSummary:
    """Train all layers on the images of a split; see `finetuning.loop.train`."""
    place(network, process.device)
    return loop.train(
        network,
        torch.optim.SGD(
            network.parameters(),
            lr=recipe.learning_rate,
            momentum=recipe.sgd_momentum,
            weight_decay=recipe.weight_decay,
            fused=fused(network),
        ),
        TrainingSamples(split, recipe, seed),
        recipe,
        seed=seed,
        folder=folder,
        process=process,
        num_workers=num_workers,
        name="masks",
        one_size=True,
    )
