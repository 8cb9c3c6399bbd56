"""Extraction of features, part by part, into files of the cache."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from shutil import disk_usage

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms import v2

from pretrain.running import stop
from pretrain.running.console import print_line, progress
from pretrain.running.loader import load_batches
from transfer.backbone import Backbone
from transfer.datasets.images import Images
from transfer.datasets.unchanged import prove_if_cheap, proving
from transfer.frozen.feature_file import UnfinishedRows, read_rows, unfinished_rows
from transfer.frozen.network import forward, frozen_network
from transfer.frozen.transforms import EvalTransform, Normalization

IMAGES_PER_BATCH = 256
IMAGES_PER_PART = 8192  # progress is stored after each part


def num_workers(images: int) -> int:
    """Return the number of loader processes; 0 if starting them costs more than they save."""
    return 0 if images < 2048 else min(len(os.sched_getaffinity(0)), 16)


class EvalImages:
    """Pixels (3, crop_px, crop_px) uint8 under the evaluation transform."""

    def __init__(self, images: Images, transform: EvalTransform) -> None:
        self.images, self.transform = images, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        pixels: Tensor = v2.functional.pil_to_tensor(self.transform.pixels(self.images[index][0]))
        return pixels


Pixels = EvalImages | Tensor
"""Pixels of images by index: decoded, or (n, 3, crop_px, crop_px) uint8 that were kept."""


def extract(
    path: Path,
    backbone: Backbone,
    images: Images,
    transform: EvalTransform,
    subject: str,
    crops: Path | None = None,
) -> None:
    """Fill an entry part by part; a later call continues after the last part.

    crops: file that keeps the pixels for later calls, if the disk has room; None keeps none.
    Does nothing if another process finishes the entry while this one waits for its lock.
    """
    with ExitStack() as files:
        rows = files.enter_context(unfinished_rows(path, (len(images), backbone.feature_dim)))
        if rows is not None:
            prepared, kept = _kept_crops(crops, EvalImages(images, transform), files)
            with proving(rows, *kept):
                _fill(backbone, rows, kept, prepared, subject)


def _kept_crops(
    path: Path | None, decoded: EvalImages, files: ExitStack
) -> tuple[Pixels, list[UnfinishedRows]]:
    """Return the kept pixels; else the images, and what keeps theirs if the disk has room."""
    if path is None:
        return decoded, []
    side = decoded.transform.crop_px
    shape = len(decoded), 3 * side**2
    path.parent.mkdir(parents=True, exist_ok=True)
    needed, free = shape[0] * shape[1], disk_usage(path.parent).free
    begun = path.exists() or path.with_suffix(".partial").exists()
    if needed > free and not begun:
        told = f"need {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free: they are not kept"
        print_line("crops", f"{path.parent}: {shape[0]:,} of {side} px {told}")
        return decoded, []
    unfinished = files.enter_context(unfinished_rows(path, shape, np.uint8))
    if unfinished is not None:
        return decoded, [unfinished]
    return torch.from_numpy(read_rows(path, shape, np.uint8)).view(-1, 3, side, side), []


def _fill(
    backbone: Backbone,
    rows: UnfinishedRows,
    kept: Sequence[UnfinishedRows],
    prepared: Pixels,
    subject: str,
) -> None:
    """Extract the features of all rows that are lacking, or that pixels are kept of."""
    network, every = frozen_network(backbone), [rows, *kept]
    where = next(network.parameters()).device
    normalize = Normalization(backbone.input, where)
    done, total = min(each.done for each in every), len(prepared)
    with progress("features", subject, total, done=done) as counter:
        for indices, raw in raw_batches(prepared, done, pinned=where.type == "cuda"):
            if indices.stop > rows.done:
                rows.write(indices.start, forward(network, normalize(raw)).cpu().numpy())
            for each in kept:
                each.write(indices.start, raw.flatten(1).numpy())
            counter.add(len(raw))
            ends_part = (indices.stop - done) % IMAGES_PER_PART == 0 or indices.stop == total
            # a whole part may take longer than the scheduler's grace period
            if ends_part or stop.is_requested():
                for each in every:
                    each.mark(indices.stop)
                stop.exit_if_requested()
                prove_if_cheap(*(each for each in every if indices.stop < total))


def raw_batches(prepared: Pixels, start: int, *, pinned: bool) -> Iterator[tuple[range, Tensor]]:
    """Yield the indices and the pixels (n, 3, H, W) uint8 of batches from `start` on.

    Batches end where parts end, so that an interrupted extraction continues with the batches of an
    uninterrupted one.
    """
    total = len(prepared)
    chunks = [
        range(first, min(first + IMAGES_PER_BATCH, part + IMAGES_PER_PART, total))
        for part in range(start, total, IMAGES_PER_PART)
        for first in range(part, min(part + IMAGES_PER_PART, total), IMAGES_PER_BATCH)
    ]

    def read(indices: range) -> Tensor:
        # as channels last, in which the network computes
        return torch.stack([prepared[i].permute(1, 2, 0) for i in indices]).permute(0, 3, 1, 2)

    batches = load_batches(
        read,
        chunks,
        num_workers=num_workers(total - start),
        pin=Tensor.pin_memory if pinned else None,
    )
    yield from zip(chunks, batches, strict=True)
