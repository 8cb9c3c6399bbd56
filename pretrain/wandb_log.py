"""The log of a run on Weights & Biases, for users who have wandb; `WANDB_MODE=offline` keeps it
on the disk."""

import secrets
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pretrain.running.atomic_files import write_whole

ID_FILE = "wandb-id"
"""File in the folder of a run that names its run on Weights & Biases."""
INSTALL = "--wandb needs the package wandb, which is not installed: pip install wandb"


def is_installed() -> bool:
    """Return whether wandb can be imported."""
    return find_spec("wandb") is not None


class WandbLog:
    """A run of a project on Weights & Biases; a resumed pre-training continues its run."""

    def __init__(self, project: str, folder: Path, settings: dict[str, object]) -> None:
        """Start or resume the run that belongs to a folder.

        settings: settings of the pre-training, shown beside the curves.
        """
        import wandb

        place = str(folder.absolute())
        folder.mkdir(parents=True, exist_ok=True)
        identity = folder / ID_FILE
        if not identity.exists():
            # in the folder: a path may mean another run on another machine, or after a new start
            write_whole(identity, secrets.token_hex(8).encode())
        self.run: Any = wandb.init(
            project=project,
            name=folder.name,
            id=identity.read_text(),
            dir=place,
            resume="allow",
            config={"folder": place, **settings},
        )

    def write(self, step: int, values: dict[str, float]) -> None:
        """Log values by name after `step` finished steps."""
        self.run.log(values, step=step)

    def close(self) -> None:
        """End the run; what was logged offline stays in the folder."""
        self.run.finish()
