"""Detections of a trained detector on a split, and the compressed file that keeps them.

The images are divided among the processes. A metric can be computed again from the file.
"""

import gzip
import io
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError

import torch
import torch.distributed as dist

from pretrain.running.atomic_files import write_whole
from pretrain.running.processes import Process, any_process, indices_of_process
from transfer.datasets.scenes import Scenes
from transfer.datasets.unchanged import UnprovenFile, proving
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.results import Detections, to_original_size
from transfer.detection.sample import Detector
from transfer.detection.samples import test_image
from transfer.running.console import progress


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
