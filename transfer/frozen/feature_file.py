"""One entry of the feature cache: a .npy file that is written row by row.

The file is called KEY.partial until all rows are finished and the images were compared once more,
then KEY.npy. KEY.rows beside it counts the finished rows: those that a comparison has followed, and
those since, for the very image files that they were made of. It is written after its rows have
reached the disk.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap

from pretrain.running.atomic_files import explain_write_errors, write_whole
from pretrain.running.lock import wait_for_lock
from transfer.datasets.unchanged import current_state

Shape = tuple[int, int]
"""Shape (n, C) of the features."""
Type = type[np.float32] | type[np.uint8]


def read_rows(path: Path, shape: Shape, dtype: Type = np.float32) -> np.memmap | None:
    """Map a finished entry (n, C); None if it is absent or torn."""
    try:
        rows: np.memmap = np.load(path, mmap_mode="c")
    except (FileNotFoundError, ValueError, EOFError):
        return None
    return rows if rows.shape == shape and rows.dtype == dtype else None


class UnfinishedRows:
    """Rows (n, C) of an unfinished entry, which this process has locked."""

    def __init__(self, path: Path, shape: Shape, dtype: Type) -> None:
        self.path, self.shape, self.dtype = path, shape, dtype
        self.partial, self.counts = path.with_suffix(".partial"), path.with_suffix(".rows")
        self.state = current_state()
        rows, counts = read_rows(self.partial, shape, dtype), _counts(self.counts)
        with explain_write_errors(self.partial, "--runs"):
            if rows is None or counts is None:
                self.counts.unlink(missing_ok=True)
                rows = open_memmap(self.partial, "w+", dtype, shape)
                counts = 0, 0, self.state
            self.offset = rows.offset
            """Number of bytes before the rows."""
            self.file = self.partial.open("r+b")
            try:
                # all space is reserved now, so that a full disk is an error at once
                os.posix_fallocate(self.file.fileno(), self.offset, rows.nbytes)
            except OSError:
                self.file.close()
                self.partial.unlink()  # it would keep the disk full
                raise
        self.proven, done, state = counts
        """Number of finished rows that a comparison of the images has followed."""
        self.done = done if state == self.state else self.proven
        """Number of finished rows."""

    def write(self, start: int, rows: np.ndarray) -> None:
        """Write rows (n, C) from position `start` on, but none again; WriteError if that fails."""
        rows = np.ascontiguousarray(rows[max(0, self.done - start) :], self.dtype)
        row_bytes = rows.itemsize * self.shape[1]
        with explain_write_errors(self.partial, "--runs"):
            self.file.seek(self.offset + max(start, self.done) * row_bytes)
            self.file.write(rows.data)

    def mark(self, done: int) -> None:
        """Store the number of finished rows, from which a process on these files continues."""
        if done > self.done:
            self.done = done
            # without a state the work needs no comparison
            self._count(self.proven if self.state else done)

    @property
    def pending(self) -> bool:
        """Return whether rows are finished, but not published."""
        return self.done > self.proven or self.done == self.shape[0]

    def publish(self) -> None:
        """Let processes on copies of these images go on from here; name a finished entry."""
        if self.done > self.proven:
            self.proven = self.done
            self._count(self.proven)
        if self.done == self.shape[0]:
            with explain_write_errors(self.path, "--runs"):
                self.partial.replace(self.path)
                self.counts.unlink(missing_ok=True)

    def discard(self) -> None:
        """Forget the rows that no comparison has followed."""
        self.done = self.proven
        self._count(self.proven)

    def _count(self, proven: int) -> None:
        with explain_write_errors(self.partial, "--runs"):
            self.file.flush()
            os.fdatasync(self.file.fileno())
        counts = json.dumps([proven, self.done, self.state])
        write_whole(self.counts, counts.encode(), "--runs")


def _counts(path: Path) -> tuple[int, int, str] | None:
    """Return the numbers of proven and of finished rows, and the state; None if it is damaged."""
    try:
        proven, done, state = json.loads(path.read_text())
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return int(proven), int(done), str(state)


@contextmanager
def unfinished_rows(
    path: Path, shape: Shape, dtype: Type = np.float32
) -> Iterator[UnfinishedRows | None]:
    """Lock an entry and yield its rows to fill; yield None if it is finished.

    Waits while another process fills it.
    """
    with wait_for_lock(path.with_suffix(".lock"), "--runs"):
        if read_rows(path, shape, dtype) is not None:
            yield None
            return
        rows = UnfinishedRows(path, shape, dtype)
        with rows.file:
            yield rows
