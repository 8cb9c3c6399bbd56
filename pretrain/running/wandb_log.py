"""The log of a run on Weights & Biases, for users who have wandb; `WANDB_MODE=offline` keeps it
on the disk."""

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

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
        self.run: Any = wandb.init(
            project=project,
            name=folder.name,
            id=hashlib.sha256(place.encode()).hexdigest()[:16],
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
