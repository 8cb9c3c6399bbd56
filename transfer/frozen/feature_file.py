"""A .npy file of the feature cache, written row by row.

The file is called KEY.partial until all rows are finished, then KEY.npy. KEY.rows next to it stores
the number of finished rows. It is written after these rows have reached the disk.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap

from pretrain.running.atomic_files import WriteError, explain_write_errors, write_whole
from pretrain.running.console import print_line
from pretrain.running.lock import wait_for_lock

Shape = tuple[int, int]
"""Shape (n, C) of the features."""
Type = type[np.float32] | type[np.uint8]


def read_rows(path: Path, shape: Shape, dtype: Type = np.float32) -> np.ndarray | None:
    """Memory-map a finished entry (n, C); None if missing or truncated."""
    try:
        rows: np.ndarray = np.load(path, mmap_mode="c")
    except (FileNotFoundError, ValueError, EOFError):
        return None
    return rows if rows.shape == shape and rows.dtype == dtype else None


class UnfinishedRows:
    """The rows (n, C) of an unfinished entry, locked by this process."""

    def __init__(self, path: Path, descriptor: int, shape: Shape, dtype: Type) -> None:
        self.path, self.descriptor, self.dtype = path, descriptor, dtype
        self.partial, self.counts = path.with_suffix(".partial"), path.with_suffix(".rows")
        self.row_bytes = np.dtype(dtype).itemsize * shape[1]
        self.done = _count(self.counts)
        """Number of finished rows."""
        if not self.done or read_rows(self.partial, shape, dtype) is None:
            self._begin(shape)
        self.offset = os.fstat(descriptor).st_size - shape[0] * self.row_bytes
        """Number of bytes before the rows."""

    def write(self, start: int, rows: np.ndarray) -> None:
        """Write rows (n, C) from index `start` on, without finished rows.

        Raises WriteError if the disk is full or fails.
        """
        rows = rows[max(0, self.done - start) :]
        offset = self.offset + max(start, self.done) * self.row_bytes
        with explain_write_errors(self.partial, "--runs"):
            _write_all(self.descriptor, np.ascontiguousarray(rows, self.dtype).tobytes(), offset)

    def mark(self, num_finished: int) -> None:
        """Store the number of finished rows, so that another process can resume."""
        if num_finished > self.done:
            with explain_write_errors(self.partial, "--runs"):
                os.fdatasync(self.descriptor)
            write_whole(self.counts, str(num_finished).encode(), "--runs")
            self.done = num_finished

    def publish(self) -> None:
        """Rename the finished file; raises WriteError if it has been deleted."""
        with explain_write_errors(self.path, "--runs"):
            self.partial.replace(self.path)
            self.counts.unlink(missing_ok=True)

    def discard(self) -> None:
        """Delete the rows."""
        for file in (self.partial, self.counts):
            file.unlink(missing_ok=True)

    def _begin(self, shape: Shape) -> None:
        """Start the file: reserve its space, with no finished rows."""
        self.done = 0
        try:
            with explain_write_errors(self.partial, "--runs"):
                self.counts.unlink(missing_ok=True)
                open_memmap(self.partial, "w+", self.dtype, shape)
                # reserve all space now, so that a full disk fails immediately
                os.posix_fallocate(self.descriptor, 0, os.fstat(self.descriptor).st_size)
        except WriteError:
            with suppress(OSError):
                self.partial.unlink()  # otherwise the disk would stay full
            raise


def _count(path: Path) -> int:
    """Return the number of finished rows; 0 if unknown."""
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return 0


@contextmanager
def unfinished_rows(
    path: Path, shape: Shape, dtype: Type = np.float32
) -> Iterator[UnfinishedRows | None]:
    """Lock an entry and yield its rows; None if it is finished.

    Waits while another process writes it. The lock ends with the process that holds it.
    """
    partial = path.with_suffix(".partial")
    note = f"waiting for another process that extracts: {path}"
    lock = path.with_suffix(".lock")
    with wait_for_lock(lock, "--runs", lambda: print_line("features", note)):
        if read_rows(path, shape, dtype) is not None:
            partial.unlink(missing_ok=True)
            path.with_suffix(".rows").unlink(missing_ok=True)
            yield None
            return
        with explain_write_errors(partial, "--runs"):
            descriptor = os.open(partial, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            yield UnfinishedRows(path, descriptor, shape, dtype)
        finally:
            os.close(descriptor)


def _write_all(descriptor: int, content: bytes, offset: int) -> None:
    """Write all content at an offset; one pwrite may write less."""
    remaining = memoryview(content)
    while remaining:
        written = os.pwrite(descriptor, remaining, offset)
        remaining, offset = remaining[written:], offset + written
