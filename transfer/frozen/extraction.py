"""Extraction of features, part by part, into files of the cache."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import v2

from transfer.backbone import Backbone
from transfer.datasets.images import Images
from transfer.frozen.feature_file import UnfinishedRows, unfinished_rows
from transfer.frozen.network import forward, frozen_network
from transfer.frozen.transforms import EvalTransform, normalize_pixels
from transfer.running import stop
from transfer.running.console import progress
from transfer.running.loader import load_stacked

IMAGES_PER_BATCH = 256
IMAGES_PER_PART = 8192  # progress is stored after each part


def num_workers(images: int) -> int:
    """Return the number of loader processes; 0 if starting them costs more than they save."""
    return 0 if images < 2048 else min(len(os.sched_getaffinity(0)), 16)


class EvalImages(Dataset[Tensor]):
    """Pixels (3, crop_px, crop_px) uint8 under the evaluation transform."""

    def __init__(self, images: Images, transform: EvalTransform) -> None:
        self.images, self.transform = images, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        pixels: Tensor = v2.functional.pil_to_tensor(self.transform.pixels(self.images[index][0]))
        return pixels


class _Entry:
    """An unfinished cache entry, and the network that fills it."""

    def __init__(self, backbone: Backbone, rows: UnfinishedRows) -> None:
        self.rows, self.form = rows, backbone.input
        self.network = frozen_network(backbone)

    def put(self, start: int, raw: Tensor) -> None:
        """Write the features of pixels (n, 3, H, W) uint8 from row `start` on, unless finished."""
        if start + len(raw) > self.rows.done:
            features = forward(self.network, normalize_pixels(raw, self.form))
            self.rows.write(start, features.cpu().numpy())

    def keep(self, done: int) -> None:
        """Mark `done` rows as finished; a later call continues there."""
        if done > self.rows.done:
            self.rows.mark(done)
        self.rows.require_in_place()


def extract(
    backbones: dict[Path, Backbone], images: Images, transform: EvalTransform, subject: str
) -> None:
    """Fill the entries part by part; a later call continues after the last part.

    An entry that another process finishes while this one waits for its lock is left out.
    """
    with ExitStack() as files:
        entries = []
        for path in sorted(backbones):  # the same order in all processes, against deadlocks
            shape = (len(images), backbones[path].feature_dim)
            rows = files.enter_context(unfinished_rows(path, shape))
            if rows is not None:
                entries.append(_Entry(backbones[path], rows))
        if entries:
            several = f" for {len(entries)} backbones" if len(entries) > 1 else ""
            _fill(entries, EvalImages(images, transform), subject + several)


def _fill(entries: Sequence[_Entry], prepared: EvalImages, subject: str) -> None:
    """Extract all rows that any of the entries lacks, and finish the entries."""
    done, total = min(entry.rows.done for entry in entries), len(prepared)
    with progress("features", subject, total, done=done) as counter:
        while done < total:
            upto = min(done + IMAGES_PER_PART, total)
            part, workers = range(done, upto), num_workers(upto - done)
            for batch in load_stacked(prepared, part, IMAGES_PER_BATCH, workers):
                for entry in entries:
                    entry.put(done, batch)
                done += len(batch)
                counter.add(len(batch))
                if (
                    stop.is_requested()
                ):  # a whole part may take longer than the scheduler's grace period
                    break
            for entry in entries:
                entry.keep(done)
            stop.exit_if_requested()
    for entry in entries:
        entry.rows.finish()
