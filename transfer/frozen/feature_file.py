"""One entry of the feature cache: rows as .npy, then marks with the number of finished rows.

The file is called KEY.partial until all rows are finished and the images were compared once more,
then KEY.npy. The first mark counts rows that a comparison has followed, the second one those since,
for the very image files that they were made of. A mark is written after its rows have reached the
disk; one with a wrong byte is ignored.
"""

import hashlib
import io
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from pretrain.running import stop
from pretrain.running.atomic_files import WriteError, explain_write_errors
from pretrain.running.console import print_line
from pretrain.running.lock import lock_file
from transfer.datasets.unchanged import current_state

MARK = struct.Struct("<8sQ16s")
"""Name of the layout, number of finished rows, digest of these, shape, offset and state."""
LAYOUT = b"sslrows1"
LOOK_AGAIN_S = 0.5
"""Time between attempts to lock a file that another process fills."""

Shape = tuple[int, int]
"""Shape (n, C) of the features."""
Type = type[np.float32] | type[np.uint8]


def read_rows(path: Path, shape: Shape, dtype: Type = np.float32) -> np.ndarray | None:
    """Map a finished entry (n, C); None if it is absent or torn."""
    try:
        rows: np.ndarray = np.load(path, mmap_mode="c")
    except (FileNotFoundError, ValueError, EOFError):
        return None
    return rows if rows.shape == shape and rows.dtype == dtype else None


class UnfinishedRows:
    """Rows (n, C) of an unfinished entry, in a file that this process has locked."""

    def __init__(self, path: Path, descriptor: int, shape: Shape, dtype: Type) -> None:
        self.path, self.descriptor, self.shape, self.dtype = path, descriptor, shape, dtype
        self.partial = path.with_suffix(".partial")
        self.state = current_state()
        header = _header(shape, dtype)
        self.offset = len(header)
        """Number of bytes before the rows."""
        self.marks = self.offset + self._num_bytes(shape[0])
        """Place of the marks, behind the rows."""
        proven = self._marked("") if os.pread(descriptor, len(header), 0) == header else None
        self.proven = proven or 0
        """Number of finished rows that a comparison of the images has followed."""
        if proven is None:
            self._begin(header)
        since = self._marked(self.state)
        self.done = max(self.proven, since or 0)
        """Number of finished rows."""
        place = self._place(self.state)
        if self.state and since is None and os.pread(descriptor, len(LAYOUT), place) == LAYOUT:
            told = "its last rows are of other files or older than these: made anew"
            print_line("features", f"{self.partial}: {told}")

    def write(self, start: int, rows: np.ndarray) -> None:
        """Write rows (n, C) from position `start` on, but none again; WriteError if that fails."""
        rows = rows[max(0, self.done - start) :]
        place = self.offset + self._num_bytes(max(start, self.done))
        with explain_write_errors(self.partial, "--runs"):
            _write_all(self.descriptor, np.ascontiguousarray(rows, self.dtype).tobytes(), place)

    def mark(self, done: int) -> None:
        """Store the number of finished rows, from which a process on these files continues.

        WriteError if the file has been deleted meanwhile.
        """
        if done > self.done:
            self._mark(done, self.state)
            self.done = done
        if not _is_at(self.descriptor, self.partial):
            raise WriteError(
                f"{self.partial}: deleted while features were written to it; "
                "start the same command again, which makes them anew"
            )

    @property
    def pending(self) -> bool:
        """Return whether rows are finished, but not published."""
        return self.done > self.proven or self.done == self.shape[0]

    def publish(self) -> None:
        """Let processes on copies of these images go on from here; name a finished entry."""
        if self.done > self.proven:
            self._mark(self.done, "")
            self.proven = self.done
        self.mark(self.done)
        if self.done == self.shape[0]:
            with explain_write_errors(self.path, "--runs"):
                self.partial.replace(self.path)
            self.partial = self.path  # a pass over several entries may prove this one once more

    def discard(self) -> None:
        """Forget the rows that no comparison has followed."""
        self._mark(self.proven, self.state)
        self.done = self.proven

    def _mark(self, done: int, state: str) -> None:
        with explain_write_errors(self.partial, "--runs"):
            os.fdatasync(self.descriptor)
            _write_all(self.descriptor, self._mark_of(done, state), self._place(state))
            os.fdatasync(self.descriptor)

    def _marked(self, state: str) -> int | None:
        """Return the number of finished rows; None if the mark is absent, damaged or not of it."""
        content = os.pread(self.descriptor, MARK.size, self._place(state))
        if len(content) < MARK.size:
            return None
        done: int = MARK.unpack(content)[1]
        return done if content == self._mark_of(done, state) else None

    def _place(self, state: str) -> int:
        """Return the place of a mark; that of a state is the second one."""
        return self.marks + MARK.size * bool(state)

    def _mark_of(self, done: int, state: str) -> bytes:
        """Return the bytes of a mark.

        state: of the image files for which it is valid; empty: for all of the data's fingerprint.
        """
        about = struct.pack("<8sQQQQ", LAYOUT, done, *self.shape, self.offset) + state.encode()
        return MARK.pack(LAYOUT, done, hashlib.sha256(about).digest()[:16])

    def _num_bytes(self, num_rows: int) -> int:
        return np.dtype(self.dtype).itemsize * self.shape[1] * num_rows

    def _begin(self, header: bytes) -> None:
        """Start the file: reserve its space and mark no row as finished."""
        try:
            with explain_write_errors(self.partial, "--runs"):
                os.ftruncate(self.descriptor, 0)
                # all space is reserved now, so that a full disk is an error at once
                os.posix_fallocate(self.descriptor, 0, self.marks + 2 * MARK.size)
                _write_all(self.descriptor, header, 0)
            self._mark(0, "")
        except WriteError:
            with suppress(OSError):
                self.partial.unlink()  # it would keep the disk full
            raise


@contextmanager
def unfinished_rows(
    path: Path, shape: Shape, dtype: Type = np.float32
) -> Iterator[UnfinishedRows | None]:
    """Lock an entry and yield its rows to fill; yield None if it is finished.

    Waits while another process fills it. The lock ends with the process that holds it.
    """
    partial = path.with_suffix(".partial")
    with explain_write_errors(partial, "--runs"):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _open_locked(partial)
    try:
        if read_rows(path, shape, dtype) is None:
            yield UnfinishedRows(path, descriptor, shape, dtype)
        else:
            partial.unlink(missing_ok=True)
            yield None
    finally:
        os.close(descriptor)


def _open_locked(partial: Path) -> int:
    """Open a file, created where it is absent, and wait until no other process has it locked."""
    while True:
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT, 0o666)
        locked = lock_file(descriptor)
        if locked and _is_at(descriptor, partial):
            return descriptor
        os.close(descriptor)
        if not locked:  # else the file was renamed or deleted before the lock: open the new one
            stop.exit_if_requested()
            time.sleep(LOOK_AGAIN_S)


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether the open file is still the one at this path."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def _header(shape: Shape, dtype: Type) -> bytes:
    """Return the header before the rows: .npy, version 1.0."""
    header = io.BytesIO()
    told = npy.dtype_to_descr(np.dtype(dtype))
    npy.write_array_header_1_0(header, {"descr": told, "fortran_order": False, "shape": shape})
    return header.getvalue()


def _write_all(descriptor: int, content: bytes, offset: int) -> None:
    """Write all content at an offset; a single pwrite may write only a part of it."""
    rest = memoryview(content)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written
