"""Extraction of features, part by part, into files of the cache."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from shutil import disk_usage
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.transforms import v2

from pretrain.running import stop
from pretrain.running.atomic_files import WriteError
from pretrain.running.console import print_line, progress
from pretrain.running.host_memory import num_sharers
from pretrain.running.loader import load_batches
from transfer.datasets.images import Images, unchanged
from transfer.encoders.encoder import Encoder
from transfer.frozen.feature_file import UnfinishedRows, read_rows, unfinished_rows
from transfer.frozen.network import device, forward, frozen_network
from transfer.frozen.transforms import EvalTransform, Normalization

IMAGES_PER_BATCH = 256
IMAGES_PER_PART = 8192  # progress is stored after each part
IMAGES_PER_WORKER = 512  # two seconds of decoding; a start takes tens of milliseconds


def num_workers(images: int) -> int:
    """Return the number of loader processes: this process's share of the cores.

    Fewer, or 0, if starting them costs more than they save.
    """
    if images < 2048:
        return 0
    return max(1, min(len(os.sched_getaffinity(0)) // num_sharers(), images // IMAGES_PER_WORKER))


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
"""Pixels (n, 3, crop_px, crop_px) uint8: decoded, or those that an earlier extraction has kept."""


class _Entry:
    """An unfinished cache entry, and the network that fills it."""

    def __init__(self, backbone: Encoder, rows: UnfinishedRows) -> None:
        self.backbone, self.rows = backbone, rows
        self.rates: list[float] = []
        """Images per second of each batch."""

    @cached_property
    def network(self) -> nn.Module:
        """The frozen network, which is built for the first batch."""
        return frozen_network(self.backbone)

    def put(self, start: int, pixels: Tensor) -> None:
        """Write the features of normalized pixels from row `start` on, unless finished."""
        if start + len(pixels) > self.rows.done:
            network, begin_s = self.network, time.perf_counter()
            features = forward(network, pixels).cpu()
            self.rates.append(len(pixels) / (time.perf_counter() - begin_s))
            self.rows.write(start, features.numpy())

    def images_per_s(self) -> float:
        """Return the median rate of the network, without the first batch; 0 with one batch."""
        return median(self.rates[1:]) if self.rates[1:] else 0.0


def extract(
    backbones: dict[Path, Encoder],
    images: Images,
    transform: EvalTransform,
    subject: str,
    crops: Path | None = None,
) -> dict[Path, float]:
    """Fill the entries part by part; a later call continues after the last part.

    crops: file that keeps the pixels for later calls, if the disk has room; None keeps none.

    An entry that another process finishes while this one waits for its lock is left out, and so is
    one whose network fails, unless it is the last. Returns the images per second of each network
    alone, 0 where there were too few.
    """
    with ExitStack() as files:
        entries = list[_Entry]()
        for path in sorted(backbones):  # the same order in all processes, against deadlocks
            shape = (len(images), backbones[path].feature_dim)
            rows = files.enter_context(unfinished_rows(path, shape))
            if rows is not None:
                entries.append(_Entry(backbones[path], rows))
        if not entries:
            return {}
        several = f" for {len(entries)} backbones" if len(entries) > 1 else ""
        prepared, kept = _kept_crops(crops, EvalImages(images, transform), files)
        every = [*(entry.rows for entry in entries), *kept]
        done, total = min(rows.done for rows in every), len(images)
        where = device()
        forms = {
            form: Normalization(form, where) for form in {entry.backbone.input for entry in entries}
        }
        with (
            unchanged(images, *every),
            progress("features", subject + several, total, done=done) as counter,
        ):
            for indices, raw in raw_batches(prepared, done, pinned=where.type == "cuda"):
                inputs = {form: normalize(raw) for form, normalize in forms.items()}
                for entry in list(entries):
                    try:
                        entry.put(indices.start, inputs[entry.backbone.input])
                    except WriteError:
                        raise
                    except Exception as error:  # of one network, such as memory that ran out
                        if len(entries) == 1:
                            raise
                        entries.remove(entry)
                        every.remove(entry.rows)
                        left_out = f"{entry.backbone.name} is left out of this pass: {error}"
                        print_line("features", left_out)
                for rows in kept:
                    rows.write(indices.start, raw.flatten(1).numpy())
                counter.add(len(raw))
                ends_part = (indices.stop - done) % IMAGES_PER_PART == 0 or indices.stop == total
                # a whole part may take longer than the scheduler's grace period
                if ends_part or stop.is_requested():
                    for rows in every:
                        rows.mark(indices.stop)
                    stop.exit_if_requested()
        for rows in every:
            rows.publish()
        return {entry.rows.path: entry.images_per_s() for entry in entries}


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
    rows = read_rows(path, shape, np.uint8)
    if rows is None:
        if needed > free and not path.with_suffix(".partial").exists():
            told = f"need {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free: they are not kept"
            print_line("crops", f"{path.parent}: {shape[0]:,} of {side} px {told}")
            return decoded, []
        unfinished = files.enter_context(unfinished_rows(path, shape, np.uint8))
        if unfinished is not None:
            return decoded, [unfinished]
        rows = read_rows(path, shape, np.uint8)  # finished by another process meanwhile
    return decoded if rows is None else torch.from_numpy(rows).view(-1, 3, side, side), []


def raw_batches(prepared: Pixels, start: int, *, pinned: bool) -> Iterator[tuple[range, Tensor]]:
    """Yield the indices and the pixels (n, 3, H, W) uint8 of batches from `start` on.

    One loader makes all of them. Batches end where parts end, so that an interrupted extraction
    continues with the batches of an uninterrupted one.
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
        pin_memory=Tensor.pin_memory if pinned else None,
    )
    yield from zip(chunks, batches, strict=True)
