"""Write files whole or not at all, explain errors of writing, and name cached work by its hash.

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
LOCKLESS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a file system without locks, such as a mounted folder without a lock service."""
UNSYNCED = (errno.EINVAL, errno.EACCES, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of syncing a folder that is written nevertheless: some network and FUSE file systems
cannot sync folders, and a folder may be writable but not readable."""

ZIP = b"PK\x03\x04"
"""First bytes of a file of torch.save; of a digest, two bytes would be these by chance."""
DIGEST_BYTES = 32
TORN = (RuntimeError, EOFError, KeyError, TypeError, ValueError, OSError, UnpicklingError)
"""Errors of torch.load for a file that was cut short or filled with zeros."""
UNFINISHED = ".unfinished"
"""Last part of the name of a file that is being written; a kill leaves it."""


class WriteError(SuiteError, OSError):
    """Error for a file that could not be written; it names the file and says what to do."""


@contextmanager
def explain_write_errors(path: Path, option: str = "") -> Iterator[None]:
    """Raise WriteError in place of any other OSError.

    option: the command-line option that selects another folder, such as --results.
    """
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        advice = ADVICE.get(error.errno or 0, "see that it can be written")
        action = "written"
        if error.errno in LOCKLESS:
            advice = "its file system must have locks, which keep two processes apart"
            action = "locked"
        elsewhere = f", or give another {option}" if option else ""
        raise WriteError(
            f"{path}: cannot be {action} ({error.strerror or error}); {advice}{elsewhere}; "
            "the same command goes on"
        ) from error


def write_whole(path: Path, content: bytes | memoryview, option: str = "") -> None:
    """Write a file with a temporary file, fsync and rename; WriteError if that fails."""
    # processes on two machines that share a folder may have the same number
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    with explain_write_errors(path, option), stop.own_work():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            _sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, on file systems that can do that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in UNSYNCED:
            raise


def write_text(path: Path, text: str, option: str = "") -> None:
    """Write a text in UTF-8, whole or not at all; WriteError if that fails.

    A name in it that is not UTF-8, which Linux allows for files, is written with escapes.
    """
    write_whole(path, text.encode(errors="backslashreplace"), option)


def save_stage(path: Path, state: dict[str, Any], option: str = "--runs") -> None:
    """Write tensors and plain values in nested dicts, after their SHA-256; WriteError if it fails.

    A view stores all of the tensor that it belongs to.
    """
    import torch

    content = io.BytesIO()
    content.write(bytes(DIGEST_BYTES))
    torch.save(state, content)
    stored = content.getbuffer()  # where getvalue would copy it
    stored[:DIGEST_BYTES] = hashlib.sha256(stored[DIGEST_BYTES:]).digest()
    write_whole(path, stored, option)


def load_stage(path: Path) -> dict[str, Any] | None:
    """Return a saved stage, on the CPU; None if the file is absent, torn or altered.

    Files of versions before this format are read: those of torch.save, and safetensors after their
    SHA-256.
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
    except TORN:
        if has_digest:
            raise
        return None
    return state if isinstance(state, dict) else None


def content_hash(content: Any, num_digits: int) -> str:
    """Return the first hex digits of the SHA-256 of a content that json can store."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:num_digits]
