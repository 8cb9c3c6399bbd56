"""Checkpoints, from which a run resumes; each is complete or absent."""

import errno
import io
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from pretrain.running.atomic_files import write_whole

TORN = (RuntimeError, EOFError, KeyError, TypeError, ValueError, OSError, UnpicklingError)
"""Errors of loading a file that is no checkpoint, was cut short, or was filled with zeros."""

DESCRIPTIONS = {"paper", "table_row", "images"}
"""Settings that describe a run in words; a corrected text does not make it another run."""


class CheckpointError(ValueError):
    """A checkpoint does not belong to this run."""


def save(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values; the previous checkpoint stays until this one is complete."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_whole(path, buffer.getbuffer())


def load(
    path: Path, settings: dict[str, object], defaults: Mapping[str, object] | None = None
) -> dict[str, Any] | None:
    """Return the state saved under the same settings, on the CPU; None where none was saved.

    defaults: of settings by name. One that the checkpoint does not know, since it was written
    before there was such an option, may have its default.
    """
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
    compared = (settings.keys() | saved.keys()) - DESCRIPTIONS
    if "batch_norm_groups" in saved:
        compared -= {"config.bn_splits"}  # only its product with the processes must agree
    before = {name: value for name, value in (defaults or {}).items() if name not in saved}
    saved = before | saved
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
