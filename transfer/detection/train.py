"""Training of a detector with the loop of finetuning/, and its detections.

As in detectron2, weight decay and learning rate depend on the parameter.
"""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import Parameter

from pretrain.running import stop
from pretrain.running.console import progress
from pretrain.running.processes import Process, indices_of_process
from transfer.datasets.scenes import Scenes
from transfer.detection.detector import Detector, Sample
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.results import Detections, to_original_size
from transfer.detection.samples import test_image, training_sample
from transfer.finetuning.loop import fused
from transfer.finetuning.state import Training
from transfer.finetuning.stream import Samples, StreamItem

Indices = Sequence[int] | NDArray[np.int64]


def training_samples(
    scenes: Scenes, indices: Indices, recipe: DetectorRecipe, seed: int
) -> Samples[Sample]:
    """Return the samples of the images at these indices, with individual sizes."""
    image_indices = np.asarray(indices, dtype=np.int64)

    def batch(items: Sequence[StreamItem]) -> list[Sample]:
        return [
            training_sample(scenes, int(image_indices[number]), recipe, (seed, position))
            for position, number in items
        ]

    return Samples(
        len(image_indices), batch, scenes.wide[image_indices] if recipe.group_by_aspect else None
    )


def training(detector: Detector, recipe: DetectorRecipe, folder: Path) -> Training:
    """Return the training of a detector on its device."""
    optimizer = sgd(detector, recipe)
    return Training(
        network=detector, optimizer=optimizer, schedule=recipe, folder=folder, name=recipe.finds
    )


NORMS = (_BatchNorm, nn.GroupNorm, nn.LayerNorm)


def sgd(detector: Detector, recipe: DetectorRecipe) -> torch.optim.SGD:
    """Return SGD with weight decay for all parameters except norm layers.

    If `rpn_gradient` is lr_mult, the RPN has a smaller learning rate: "rate_factor" of a parameter
    group is the factor that `finetuning.schedule.set_learning_rate` applies.
    """
    groups: dict[tuple[float, float], list[Parameter]] = defaultdict(list)
    for module_name, module in detector.named_modules():
        decay = 0.0 if isinstance(module, NORMS) else recipe.weight_decay
        is_rpn = f"{module_name}.".startswith(detector.rpn_prefix)
        is_slower = is_rpn and recipe.rpn_gradient == "lr_mult"
        for parameter in module.parameters(recurse=False):
            groups[decay, recipe.rpn_gradient_factor if is_slower else 1.0].append(parameter)
    return torch.optim.SGD(
        [
            {"params": parameters, "weight_decay": decay, "rate_factor": factor}
            for (decay, factor), parameters in groups.items()
        ],
        lr=recipe.learning_rate,
        momentum=recipe.sgd_momentum,
        fused=fused(detector),
    )


def detect(
    detector: Detector, scenes: Scenes, recipe: DetectorRecipe, process: Process
) -> list[Detections]:
    """Return the detections on all images, in every process.

    They are in the order of the split. Each batch is one image, so that images have the same
    padding as in detectron2's test.
    """
    detector.eval()
    detections = []
    progress_context = (
        progress("detect", recipe.finds, len(scenes)) if process.is_main else nullcontext()
    )
    with torch.inference_mode(), progress_context as counter:
        for index in indices_of_process(len(scenes), process):
            image = test_image(scenes, index, recipe)
            result = detector.find([image.to(process.device)])[0]
            detections.append(to_original_size(result, scenes.scene(index), image))
            stop.exit_if_requested()
            if counter is not None:
                counter.add(min(process.num_processes, len(scenes) - index))
    return gather_detections(detections, process)


def gather_detections(detections: list[Detections], process: Process) -> list[Detections]:
    """Return the detections of all processes in the order of the split.

    Image i was entry i // num_processes of process i % num_processes.
    """
    if process.num_processes == 1:
        return detections
    by_process: list[list[Detections]] = [[] for _ in range(process.num_processes)]
    dist.all_gather_object(by_process, detections)
    total = sum(map(len, by_process))
    return [by_process[i % len(by_process)][i // len(by_process)] for i in range(total)]
