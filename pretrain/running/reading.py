"""Read files, with repetitions after temporary errors of network disks.

ReadError means that the machine could not read a file. It says nothing about its content.
"""

import codecs
import errno
import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pretrain.running import stop
from pretrain.running.console import print_line
from pretrain.running.errors import SuiteError

TEMPORARY_ERRORS = frozenset(
    (
        *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EREMOTEIO, errno.ECOMM),
        *(errno.ENOTCONN, errno.ESHUTDOWN, errno.ECONNRESET, errno.ECONNABORTED),
        *(errno.ECONNREFUSED, errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET),
        *(errno.EHOSTDOWN, errno.EHOSTUNREACH),
    )
)
"""Temporary errors of a disk or its network.
A missing or forbidden file is not one."""
PATIENCE_S, FIRST_PAUSE_S = 10.0, 0.1
"""Time for repeating reads, and first pause.
The pause doubles each time."""

Content = TypeVar("Content")


class ReadError(SuiteError):
    """A file could not be read for some seconds.

    Running the same command later may succeed. It is not an OSError, so no code mistakes it for a
    damaged or missing file.
    """


def may_pass(error: BaseException) -> bool:
    """Return whether an error is temporary: a later start may succeed."""
    return isinstance(error, ReadError) or (
        isinstance(error, OSError) and error.errno in TEMPORARY_ERRORS
    )


def retry_reads(path: Path | str, read: Callable[[], Content]) -> Content:
    """Return the result of `read`; repeat it after temporary errors.

    Raises ReadError after the time limit or if a stop is requested; other errors are raised at
    once.
    """
    deadline_s, pause_s = time.monotonic() + PATIENCE_S, FIRST_PAUSE_S
    while True:
        try:
            return read()
        except OSError as error:
            if error.errno not in TEMPORARY_ERRORS:
                raise
            reason = os.strerror(error.errno)
            if stop.is_requested() or time.monotonic() > deadline_s:
                raise ReadError(
                    f"{path}: cannot be read ({reason}), although reading was repeated for "
                    f"{PATIENCE_S:.0f} s. Check the disk or its network; the file itself may be "
                    "fine. Run the same command to resume"
                ) from error
        if pause_s == FIRST_PAUSE_S:
            print_line(f"{path}: {reason}; reading it again")
        time.sleep(pause_s)
        pause_s *= 2


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, with `retry_reads`."""
    return retry_reads(path, path.read_bytes)


def read_text(path: Path, errors: str = "strict") -> str:
    r"""Return the text of a UTF-8 file, with `retry_reads`.

    Line ends become "\n". A byte order mark is removed; one of UTF-16, which Windows writes,
    selects that encoding.
    """
    content = read_bytes(path)
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = content.decode("utf-16" if is_utf16 else "utf-8-sig", errors)
    return io.StringIO(text, newline=None).getvalue()


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file."""
    import yaml

    # PyYAML's C loader, if built, is many times faster than the Python one
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(read_text(path), loader)
