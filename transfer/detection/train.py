"""Training of a detector by the loop of finetuning/ with detectron2's groups, and its detections.

Weight decay and learning rate depend on the parameter.
"""

import gzip
import io
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import Parameter

from pretrain.running.atomic_files import write_whole
from pretrain.running.processes import Process, any_process, indices_of_process
from transfer.datasets.scenes import Scenes
from transfer.datasets.unchanged import UnprovenFile, proving
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.results import Detections, to_original_size
from transfer.detection.sample import Detector, Sample
from transfer.detection.samples import test_image, training_sample
from transfer.finetuning import loop
from transfer.finetuning.gpu import fused, place
from transfer.finetuning.state import TrainingSummary
from transfer.finetuning.stream import Place
from transfer.running.console import progress

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


def detect(
    detector: Detector, scenes: Scenes, recipe: DetectorRecipe, process: Process
) -> list[Detections]:
    """Return the detections on every image, in the split's order, on every process.

    Each batch is one image, which is then padded as little as in detectron2's test.
    """
    detector.network.eval()
    detections = []
    counting = progress("detect", recipe.finds, len(scenes)) if process.is_main else nullcontext()
    with torch.inference_mode(), counting as counter:
        for index in indices_of_process(len(scenes), process):
            image = test_image(scenes, index, recipe)
            result = detector.find([image.to(process.device)])[0]
            detections.append(to_original_size(result, scenes.scene(index), image))
            if counter is not None:
                counter.add(min(process.num_processes, len(scenes) - index))
    return gather_detections(detections, process)


def gather_detections(mine: list[Detections], process: Process) -> list[Detections]:
    """Return the detections of all processes in the order of the split.

    The images were dealt in turn: image i is entry i // processes of process i % processes.
    """
    if process.num_processes == 1:
        return mine
    shares: list[list[Detections]] = [[] for _ in range(process.num_processes)]
    dist.all_gather_object(shares, mine)
    total = sum(map(len, shares))
    return [shares[i % len(shares)][i // len(shares)] for i in range(total)]


UNREADABLE = (OSError, EOFError, RuntimeError, UnpicklingError, ValueError, TypeError)
"""Errors of a file that is absent or was cut short."""


def kept_detections(
    file: Path, number: int, detect: Callable[[], list[Detections]], process: Process
) -> list[Detections]:
    """Return the detections in a file, on every process; if it has none, detect and write them.

    file: its name must tell everything that shaped the detections. number: images of the split.
    """
    saved = UnprovenFile(file)
    kept = read_detections(saved.newest)
    absent = kept is None or len(kept) != number
    # all or none: they wait for each other at the end of a pass
    with proving(*[saved] * process.is_main):
        if any_process([absent], process)[0] or kept is None:
            kept = detect()
            if process.is_main:
                write_detections(saved.private, kept)
    return kept


def write_detections(file: Path, detections: list[Detections]) -> None:
    """Write detections whole or not at all."""
    buffer = io.BytesIO()
    torch.save([asdict(entry) for entry in detections], buffer)
    write_whole(file, gzip.compress(buffer.getvalue(), compresslevel=6), "--runs")


def read_detections(file: Path) -> list[Detections] | None:
    """Return the detections in a file, None if there are none or the file is torn."""
    try:
        content = gzip.decompress(file.read_bytes())
        entries = torch.load(io.BytesIO(content), weights_only=True)
        return [Detections(**entry) for entry in entries]
    except UNREADABLE:
        return None
