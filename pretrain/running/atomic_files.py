"""Write files atomically, explain write errors, and hash content.

After a kill or on a full disk, a file has either its old or its new content.
"""

import errno
import hashlib
import io
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from pretrain.running import stop
from pretrain.running.errors import SuiteError

ADVICE = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some of your quota there",
    errno.EACCES: "make it writable",
    errno.EPERM: "make it writable",
    errno.EROFS: "make it writable",
}
"""Advice by error number."""
NO_LOCK_ERRORS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a file system without locks.
For example, a mount without a lock service."""

ZIP = b"PK\x03\x04"
"""First bytes of a file of torch.save.
The first two bytes of a digest could equal them by chance."""
DIGEST_BYTES = 32
TRUNCATED_ERRORS = (
    RuntimeError,
    EOFError,
    KeyError,
    TypeError,
    ValueError,
    OSError,
    UnpicklingError,
)
"""Errors of torch.load for a truncated file, or one filled with zeros."""
UNFINISHED = ".unfinished"
"""Suffix of a file while it is written.
A killed process leaves it."""


class WriteError(SuiteError, OSError):
    """A file could not be written; the message gives advice."""


@contextmanager
def explain_write_errors(path: Path, option: str = "") -> Iterator[None]:
    """Raise WriteError instead of any other OSError.

    option: the command-line option that selects another folder, such as --results.
    """
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        advice = ADVICE.get(error.errno or 0, "make sure that it can be written")
        action = "written"
        if error.errno in NO_LOCK_ERRORS:
            advice = "its file system must support locks, which exclude other processes"
            action = "locked"
        alternative = f", or pass another {option}" if option else ""
        raise WriteError(
            f"{path}: cannot be {action} ({error.strerror or error}); {advice}{alternative}. "
            "Then run the same command to resume"
        ) from error


def write_whole(path: Path, content: bytes | memoryview, option: str = "") -> None:
    """Write a file atomically: temporary file, fsync and rename.

    Raises WriteError if that fails.
    """
    # a process id is not unique if machines share the folder
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    with explain_write_errors(path, option), stop.local_work():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, option: str = "") -> None:
    """Write a text in UTF-8, atomically; WriteError if that fails.

    File names that are not UTF-8, which Linux allows, are written with escapes.
    """
    write_whole(path, text.encode(errors="backslashreplace"), option)


def save_stage(path: Path, state: dict[str, Any], option: str = "--runs") -> None:
    """Write nested dicts of tensors and plain values, with SHA-256.

    Raises WriteError if it fails. For a view, the whole tensor's storage is written.
    """
    import torch

    content = io.BytesIO()
    content.write(bytes(DIGEST_BYTES))
    torch.save(state, content)
    stored = content.getbuffer()  # getvalue would copy it
    stored[:DIGEST_BYTES] = hashlib.sha256(stored[DIGEST_BYTES:]).digest()
    write_whole(path, stored, option)


def load_stage(path: Path) -> dict[str, Any] | None:
    """Return a saved stage, on the CPU.

    None if the file is missing, truncated or altered. Formats of earlier versions are supported:
    torch.save without digest, and safetensors after a SHA-256.
    """
    import torch

    from pretrain.running.reading import read_bytes

    try:
        stored = memoryview(read_bytes(path))
    except FileNotFoundError:
        return None
    content, has_digest = stored[DIGEST_BYTES:], bytes(stored[:4]) != ZIP
    if not has_digest:
        content = stored
    elif hashlib.sha256(content).digest() != stored[:DIGEST_BYTES]:
        return None
    elif bytes(content[:4]) != ZIP:
        import safetensors.torch

        return dict(safetensors.torch.load(bytes(content)))
    try:
        state: Any = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except TRUNCATED_ERRORS:
        if has_digest:
            raise
        return None
    return state if isinstance(state, dict) else None


def content_hash(content: Any, num_digits: int) -> str:
    """Return the first hex digits of the SHA-256 of JSON content."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:num_digits]
