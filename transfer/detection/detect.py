"""Inference of a trained detector on a split whose images are divided among the processes."""

from contextlib import nullcontext

import torch
import torch.distributed as dist

from transfer.datasets.scenes import Scenes
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.results import Detections, to_original_size
from transfer.detection.sample import Detector
from transfer.detection.samples import test_image
from transfer.running.console import progress
from transfer.running.processes import Process, indices_of_process


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
