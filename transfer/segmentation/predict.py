"""Predictions of a segmentation network on a split."""

from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist

from pretrain.running.console import progress
from pretrain.running.processes import Process, indices_of_process
from transfer.datasets.segmented import Segmented, write_mask
from transfer.finetuning.stream import pixels
from transfer.segmentation.linear import LinearSegmenter
from transfer.segmentation.masks import prediction_path
from transfer.segmentation.network import FCN


def predict(
    network: FCN | LinearSegmenter, split: Segmented, folder: Path, process: Process
) -> None:
    """Predict and write the mask of each image.

    Masks are PNG files at the images' original sizes. The file of image i is
    `prediction_path(folder, split, i)`.
    """
    network.eval()
    counting = progress("predict", "masks", len(split)) if process.is_main else nullcontext()
    with torch.inference_mode(), counting as counter:
        for index in indices_of_process(len(split), process):
            image = pixels(split.source.decode(index)).to(process.device)
            classes = network.classes(image).cpu().numpy()
            write_mask(prediction_path(folder, split, index), classes, "--runs")
            if counter is not None:
                counter.add(min(process.num_processes, len(split) - index))
    if process.num_processes > 1:
        dist.barrier()
