"""Detections of a whole split in one compressed file, so that a metric can be computed again."""

import gzip
import io
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError

import torch

from transfer.datasets.unchanged import UnprovenFile, proving
from transfer.detection.results import Detections
from transfer.running.atomic_files import write_whole
from transfer.running.processes import Process, any_process

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
