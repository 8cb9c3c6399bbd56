"""Checkpoints, from which a run resumes; each is complete or absent."""

import errno
import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

TORN = (RuntimeError, EOFError, KeyError, TypeError, ValueError, OSError, UnpicklingError)
"""Errors of loading a file that is no checkpoint, was cut short, or was filled with zeros."""

UNKNOWN_TO_OLDER = {"batch_norm_groups", "local_prior_images"}
"""Settings that older checkpoints lack; where they are missing, they count as equal."""

DESCRIPTIONS = {"paper", "table_row", "images"}
"""Settings that describe a run in words; a corrected text does not make it another run."""

UNFINISHED = ".unfinished"
"""Last part of the name of a file that is being written; a kill leaves it."""


class CheckpointError(ValueError):
    """A checkpoint does not belong to this run."""


class SaveError(OSError):
    """A file could not be written; the one before it is intact."""


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Raise a SaveError that names the path in place of any other OSError, which may not."""
    try:
        yield
    except SaveError:
        raise
    except OSError as error:
        raise SaveError(
            f"{path}: cannot be written ({error.strerror or error}); see that it is writable and "
            "that its disk has room, then start the same command again"
        ) from error


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Write a file, or leave it as it was and raise a SaveError."""
    # a name of its own: another machine may write the same file where locks do not reach
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        before = "the previous one is intact" if path.exists() else "there was none before"
        raise SaveError(
            f"{path}: {len(content) / 1e6:.0f} MB could not be written ({error}); {before}. "
            f"Make room and start the same command again"
        ) from error


def save(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values; the previous checkpoint stays until this one is complete."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(path, buffer.getbuffer())


def load(path: Path, settings: dict[str, object]) -> dict[str, Any] | None:
    """Return the state saved under the same settings, on the CPU; None where none was saved."""
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        saved = state["settings"]
    except TORN as error:
        # torch seeks before the start of a torn file, which is an invalid argument; other errors
        # of the system, such as a disk that cannot be read, are no reason to delete the file
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise CheckpointError(
            f"{path} is no checkpoint of a run ({error}); delete it or choose another --out"
        ) from error
    compared = (settings.keys() | saved.keys()) - (UNKNOWN_TO_OLDER - saved.keys())
    compared -= DESCRIPTIONS
    if "batch_norm_groups" in saved:
        compared -= {"config.bn_splits"}  # only its product with the processes must agree
    names = [name for name in sorted(compared) if settings.get(name) != saved.get(name)]
    if names:
        changed = "; ".join(
            f"{name} {saved.get(name)!r} -> {settings.get(name)!r}" for name in names
        )
        advice = _processes_advice(saved) if "batch_norm_groups" in names else ""
        raise CheckpointError(
            f"{path} was made by another run: {changed}. "
            f"Start with its settings to go on{advice}, or choose another --out"
        )
    return state


def _processes_advice(saved: dict[str, Any]) -> str:
    """Return the part of an error that names the processes that give as many groups."""
    groups = saved["batch_norm_groups"]
    if "config.bn_splits" in saved:
        return f": processes times --bn-splits were {groups}"
    return f": with {groups} process{'es' * (groups > 1)}"
