"""Checkpoints to resume a run from, written atomically."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pretrain.running.atomic_files import load_stage, write_whole

FREE = {"paper", "table_row", "images", "norm_groups", "config.bn_splits"}
"""Settings that may change on resume.
Facts about the paper do not affect the run. bn_splits affects it only by its product with the
number of processes, which is the setting batch_norm_groups."""


SET_BY: Mapping[str, str] = {
    "recipe": "the recipe",
    "num_steps": "--epochs, --steps or the number of images",
    "precision": "--precision or the device",
    "batch_norm_groups": "the number of processes times --bn-splits, if any",
    "local_prior_images": "--batch-size or the number of processes",
    "data": "the images of --data",
    "texture": "--style-bank",
}
"""What determines the settings that are not options themselves."""


class CheckpointError(ValueError):
    """A checkpoint does not belong to this run."""


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a state of tensors and plain values.

    The previous file is kept until the new one is complete.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_whole(path, buffer.getbuffer())  # getvalue would copy the whole file


def load(
    path: Path, settings: dict[str, object], published: Mapping[str, object]
) -> dict[str, Any] | None:
    """Return the state saved with the same settings, on the CPU.

    None if there is no checkpoint. published: settings of the recipe. If a checkpoint lacks a
    setting because the option did not exist yet, the recipe's value is assumed.
    """
    if not path.exists():
        return None
    # checkpoints have no digest, so that users can open them with torch.load
    state = load_stage(path)
    if state is None or "settings" not in state:
        raise CheckpointError(
            f"{path} is not a training checkpoint, or is truncated. Delete it, or pass another "
            "--out"
        )
    saved = {n: value for n, value in published.items() if n in settings} | state["settings"]
    names = sorted((settings.keys() | saved.keys()) - FREE)
    if changed := [name for name in names if settings.get(name) != saved.get(name)]:
        differences = "; ".join(
            f"{option_of(name)} {saved.get(name)!r} -> {settings.get(name)!r}" for name in changed
        )
        raise CheckpointError(
            f"{path} was made by another run: {differences}. To resume, set these as before; "
            f"otherwise pass another --out"
        )
    return state


def option_of(setting: str) -> str:
    """Return the option of a setting, or what else determines it."""
    if setting in SET_BY:
        return f"{SET_BY[setting]}: {setting}"
    return f"--{setting.rpartition('.')[2].replace('_', '-')}"
