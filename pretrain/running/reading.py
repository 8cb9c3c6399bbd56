"""Reading files of network disks, whose errors may pass: try again for some seconds.

ReadError means that the machine could not read a file. Nothing is said about its content.
"""

import codecs
import errno
import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pretrain.running import stop
from pretrain.running.console import print_line
from pretrain.running.errors import SuiteError

PASSING = frozenset(
    (
        *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EREMOTEIO, errno.ECOMM),
        *(errno.ENOTCONN, errno.ESHUTDOWN, errno.ECONNRESET, errno.ECONNABORTED),
        *(errno.ECONNREFUSED, errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET),
        *(errno.EHOSTDOWN, errno.EHOSTUNREACH),
    )
)
"""Numbers of errors of a disk or its network, as opposed to a missing or forbidden file."""
PATIENCE_S, FIRST_PAUSE_S = 10.0, 0.1
"""Time for which a read is repeated, and the first pause between two reads, which doubles."""

Content = TypeVar("Content")


class ReadError(SuiteError):
    """A file could not be read for some seconds; a later start of the same command may succeed.

    It is not an OSError, so that no code takes it for a damaged or missing file.
    """


def may_pass(error: BaseException) -> bool:
    """Return whether an error says nothing about the request, so that a later start may succeed."""
    return isinstance(error, ReadError) or (isinstance(error, OSError) and error.errno in PASSING)


def retry_reads(path: Path | str, read: Callable[[], Content]) -> Content:
    """Return what `read` returns; repeat it after an error that may pass.

    Raises a ReadError when the patience ends or a stop is requested, and any other error at once.
    """
    until_s, pause_s = time.monotonic() + PATIENCE_S, FIRST_PAUSE_S
    while True:
        try:
            return read()
        except OSError as error:
            if error.errno not in PASSING:
                raise
            reason = os.strerror(error.errno)
            if stop.is_requested() or time.monotonic() > until_s:
                raise ReadError(
                    f"{path}: cannot be read ({reason}), although it was tried for "
                    f"{PATIENCE_S:.0f} s. Check the disk or its network; the file itself may be "
                    "fine. Run the same command to go on"
                ) from error
        if pause_s == FIRST_PAUSE_S:
            print_line(f"{path}: {reason}; reading it again")
        time.sleep(pause_s)
        pause_s *= 2


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, as `retry_reads` does."""
    return retry_reads(path, path.read_bytes)


def read_text(path: Path, errors: str = "strict") -> str:
    """Return the text of a file in UTF-8, as `retry_reads` does, with "\\n" as the line end.

    A byte order mark is left out; that of UTF-16, which Windows writes, is heeded.
    """
    content = read_bytes(path)
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = content.decode("utf-16" if is_utf16 else "utf-8-sig", errors)
    return io.StringIO(text, newline=None).getvalue()
