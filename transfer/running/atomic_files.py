"""Write files whole or not at all, and explain what stands in the way of writing.

Every kill and every full disk leaves the file as it was before, or as it was to become.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ADVICE = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some of your quota there",
    errno.EACCES: "make it writable",
    errno.EPERM: "make it writable",
    errno.EROFS: "make it writable",
}
"""What to do, by the number of the error."""


class WriteError(OSError):
    """A file could not be written; the message names the file and says what to do."""


@contextmanager
def explain_write_errors(path: Path, option: str = "") -> Iterator[None]:
    """Raise WriteError in place of any other OSError.

    option: the word of the command line that leads to another folder, such as --results.
    """
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        advice = ADVICE.get(error.errno or 0, "see that it can be written")
        elsewhere = f", or give another {option}" if option else ""
        raise WriteError(
            f"{path}: cannot be written ({error.strerror or error}); {advice}{elsewhere}; "
            "the same command goes on"
        ) from error


def write_whole(path: Path, content: bytes, option: str = "") -> None:
    """Write a file by way of a temporary file, fsync and rename; WriteError if that fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with explain_write_errors(path, option):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
