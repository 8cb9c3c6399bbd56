"""Extract features into files of the cache, chunk by chunk."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from shutil import disk_usage

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.transforms import v2

from pretrain.running import stop
from pretrain.running.atomic_files import WriteError
from pretrain.running.console import print_line, progress
from pretrain.running.host_memory import num_cores
from pretrain.running.loader import load_batches
from transfer.datasets.images import Images, unchanged
from transfer.encoders.encoder import Encoder
from transfer.frozen.feature_file import UnfinishedRows, read_rows, unfinished_rows
from transfer.frozen.network import device, forward, frozen_network
from transfer.frozen.transforms import EvalTransform, Normalization

IMAGES_PER_BATCH = 256
IMAGES_PER_CHUNK = 8192  # progress is stored after each chunk
IMAGES_PER_WORKER = 512  # two seconds of decoding; starting a process takes much less


def num_workers(images: int) -> int:
    """Return the number of loader processes for a number of images.

    At most this process's CPU cores; fewer, or 0, if starting them costs more than they save.
    """
    if images < 2048:
        return 0
    return max(1, min(num_cores(), images // IMAGES_PER_WORKER))


class EvalImages:
    """Dataset of uint8 pixels (3, crop_px, crop_px) after the evaluation transform."""

    def __init__(self, images: Images, transform: EvalTransform) -> None:
        self.images, self.transform = images, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        pixels: Tensor = v2.functional.pil_to_tensor(self.transform.pixels(self.images[index][0]))
        return pixels


Pixels = EvalImages | Tensor
"""Pixels (n, 3, crop_px, crop_px) uint8, decoded or from the cache."""


class _Entry:
    """An unfinished cache entry, and the network that fills it."""

    def __init__(self, backbone: Encoder, rows: UnfinishedRows) -> None:
        self.backbone, self.rows = backbone, rows
        self.normalize = Normalization(backbone.input, device())

    @cached_property
    def network(self) -> nn.Module:
        """The frozen network, built for the first batch."""
        return frozen_network(self.backbone)

    def put(self, start: int, raw: Tensor) -> None:
        """Compute and write the features of rows from `start` on, unless finished.

        raw: uint8 pixels.
        """
        if start + len(raw) > self.rows.done:
            features = forward(self.network, self.normalize(raw)).cpu()
            self.rows.write(start, features.numpy())


def extract(
    backbones: dict[Path, Encoder],
    images: Images,
    transform: EvalTransform,
    subject: str,
    crops: Path | None = None,
) -> None:
    """Extract features into cache entries.

    A repeated call resumes after the last finished chunk.

    crops: file that caches the pixels for later calls, if the disk has space; None: no cache.

    An entry is skipped if another process finishes it while this one waits for its lock. If a
    network fails, for example by an out-of-memory error, the error is raised when all other entries
    are finished.

    Returns the median throughput of each network in images/s, without the first batch; networks
    with fewer than two batches are missing.
    """
    errors = list[Exception]()
    with ExitStack() as files:
        entries = list[_Entry]()
        for path in sorted(backbones):  # equal order in all processes prevents deadlocks
            shape = (len(images), backbones[path].feature_dim)
            rows = files.enter_context(unfinished_rows(path, shape))
            if rows is not None:
                entries.append(_Entry(backbones[path], rows))
        if not entries:
            return
        suffix = f" for {len(entries)} backbones" if len(entries) > 1 else ""
        prepared, crop_rows = _cached_crops(crops, EvalImages(images, transform), files)
        all_rows = [*(entry.rows for entry in entries), *crop_rows]
        start, total = min(rows.done for rows in all_rows), len(images)
        pinned = device().type == "cuda"
        with (
            unchanged(images, *all_rows),
            progress("features", subject + suffix, total, done=start) as counter,
        ):
            for indices, raw in raw_batches(prepared, start, pinned=pinned):
                for entry in list(entries):
                    try:
                        entry.put(indices.start, raw)
                    except WriteError:
                        raise
                    except Exception as error:  # such as running out of memory
                        if len(entries) == 1:
                            raise
                        # its frames hold the activations and the network
                        errors.append(error.with_traceback(None))
                        entries.remove(entry)
                        all_rows.remove(entry.rows)
                for rows in crop_rows:
                    rows.write(indices.start, raw.flatten(1).numpy())
                counter.add(len(raw))
                ends_chunk = (indices.stop - start) % IMAGES_PER_CHUNK == 0 or indices.stop == total
                # a full chunk may take longer than the scheduler's grace period
                if ends_chunk or stop.is_requested():
                    for rows in all_rows:
                        rows.mark(indices.stop)
                    stop.exit_if_requested()
        for rows in all_rows:
            rows.publish()
    if errors:
        raise errors[0]


def _cached_crops(
    path: Path | None, decoded: EvalImages, files: ExitStack
) -> tuple[Pixels, list[UnfinishedRows]]:
    """Return cached pixels, or images and files to cache them in."""
    if path is None:
        return decoded, []
    size = decoded.transform.crop_px
    shape = len(decoded), 3 * size**2
    path.parent.mkdir(parents=True, exist_ok=True)
    num_bytes, free = shape[0] * shape[1], disk_usage(path.parent).free
    rows = read_rows(path, shape, np.uint8)
    if rows is None:
        if num_bytes > free and not path.with_suffix(".partial").exists():
            note = f"need {num_bytes / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free: not cached"
            print_line("crops", f"{path.parent}: {shape[0]:,} crops of {size} px {note}")
            return decoded, []
        unfinished = files.enter_context(unfinished_rows(path, shape, np.uint8))
        if unfinished is not None:
            return decoded, [unfinished]
        rows = read_rows(path, shape, np.uint8)  # another process has finished it
    return decoded if rows is None else torch.from_numpy(rows).view(-1, 3, size, size), []


def raw_batches(prepared: Pixels, start: int, *, pinned: bool) -> Iterator[tuple[range, Tensor]]:
    """Yield indices and pixels of batches from `start` on.

    Batches end where chunks end, so a resumed extraction has the batches of an uninterrupted one.
    """
    total = len(prepared)
    batch_indices = [
        range(first, min(first + IMAGES_PER_BATCH, chunk + IMAGES_PER_CHUNK, total))
        for chunk in range(start, total, IMAGES_PER_CHUNK)
        for first in range(chunk, min(chunk + IMAGES_PER_CHUNK, total), IMAGES_PER_BATCH)
    ]

    def read(indices: range) -> Tensor:
        # channels last, as the network needs it
        return torch.stack([prepared[i].permute(1, 2, 0) for i in indices]).permute(0, 3, 1, 2)

    batches = load_batches(
        read,
        batch_indices,
        num_workers=num_workers(total - start),
        pin_memory=Tensor.pin_memory if pinned else None,
    )
    yield from zip(batch_indices, batches, strict=True)
