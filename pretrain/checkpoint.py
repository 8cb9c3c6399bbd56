"""Checkpoints, from which a run resumes; each is complete or absent."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pretrain.running.atomic_files import load_stage, write_whole

FREE = {"paper", "table_row", "images", "norm_groups", "config.bn_splits"}
"""Settings that a resumed run may change: facts about the paper, whose correction makes no other
run, and splits, of which only the product with the processes counts, batch_norm_groups."""


SET_BY: Mapping[str, str] = {
    "recipe": "the recipe",
    "num_steps": "--epochs, --steps or the number of images",
    "precision": "--precision or the device",
    "batch_norm_groups": "the number of processes times --bn-splits, if any",
    "local_prior_images": "--batch-size or the number of processes",
    "data": "the images of --data",
    "texture": "--style-bank",
}
"""What sets a setting that is no option itself."""


class CheckpointError(ValueError):
    """A checkpoint does not belong to this run."""


def save(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values; the previous file stays until this one is complete."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_whole(path, buffer.getbuffer())  # where getvalue would copy the whole file


def load(
    path: Path, settings: dict[str, object], published: Mapping[str, object]
) -> dict[str, Any] | None:
    """Return the state saved under the same settings, on the CPU; None where none was saved.

    published: settings of the recipe. One that the checkpoint does not know, since it was written
    before there was such an option, may have the recipe's value.
    """
    if not path.exists():
        return None
    # written without a digest, so that torch.load opens it
    state = load_stage(path)
    if state is None or "settings" not in state:
        raise CheckpointError(
            f"{path} is not a training checkpoint, or not a complete one. Delete it, or choose "
            "another --out"
        )
    saved = {n: value for n, value in published.items() if n in settings} | state["settings"]
    if "views_made" in saved:
        raise CheckpointError(
            f"{path} is of an earlier version, which made other views; choose another --out"
        )
    names = sorted((settings.keys() | saved.keys()) - FREE)
    if changed := [name for name in names if settings.get(name) != saved.get(name)]:
        differences = "; ".join(
            f"{option_of(name)} {saved.get(name)!r} -> {settings.get(name)!r}" for name in changed
        )
        raise CheckpointError(
            f"{path} was made by another run: {differences}. Set these as they were to go on, or "
            f"choose another --out"
        )
    return state


def option_of(setting: str) -> str:
    """Return the option that sets a setting of a run, or what else does, before its values."""
    if setting in SET_BY:
        return f"{SET_BY[setting]}: {setting}"
    return f"--{setting.rpartition('.')[2].replace('_', '-')}"
