"""Save and resume: a checkpoint is complete or not there."""

import io
import os
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch


class CheckpointError(ValueError):
    """A checkpoint does not belong to this run."""


class SaveError(OSError):
    """A file could not be written; the one before it is intact."""


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Replace a file by its next version, or leave it as it was and raise a SaveError."""
    unfinished = path.with_name(path.name + ".unfinished")
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
    """The state saved under the same settings, on the CPU; None where none was saved."""
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        saved = state["settings"]
    except (RuntimeError, EOFError, KeyError, TypeError, UnpicklingError) as error:
        raise CheckpointError(
            f"{path} is no checkpoint of a run ({error}); delete it or choose another --out"
        ) from error
    changed = [
        f"{name} {saved.get(name)!r} -> {settings.get(name)!r}"
        for name in sorted(settings.keys() | saved.keys())
        if settings.get(name) != saved.get(name)
    ]
    if changed:
        raise CheckpointError(
            f"{path} was made by another run: {'; '.join(changed)}. "
            f"Start with its settings to go on, or choose another --out"
        )
    return state
