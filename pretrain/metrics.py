"""Log of a run: metrics.jsonl, TensorBoard and, on request, Weights & Biases.

Each line holds one mean per window of steps.
"""

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from pretrain.running.atomic_files import explain_write_errors, write_whole
from pretrain.wandb_log import WandbLog

LOG_FILE = "metrics.jsonl"
RATES = ("step", "epoch", "learning_rate", "images_per_s", "data_share")
"""Entries of a line of the log that are no metrics of the method."""


class NotFiniteError(ArithmeticError):
    """An infinite or undefined loss."""


class Window:
    """Metrics of the steps since they were last read; nothing waits for the device until then.

    A method may leave out metrics of steps after which nobody reads; means are over the others.
    """

    def __init__(self) -> None:
        self.values: dict[str, list[Tensor]] = {}

    def add(self, metrics: dict[str, Tensor]) -> None:
        """Add the metrics of one step, scalars of shape () on any device."""
        for name, value in metrics.items():
            self.values.setdefault(name, []).append(value.detach().float())

    def __len__(self) -> int:
        return len(self.values.get("loss", ()))

    def state_dict(self) -> dict[str, Tensor]:
        """Return name -> values (steps,) on the CPU; wait for the device once per metric."""
        return {
            name: torch.stack([value.to(values[-1].device) for value in values]).cpu()
            for name, values in self.values.items()
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore name -> values of shape (steps,)."""
        self.values = {name: list(values) for name, values in state.items()}

    def first_bad_step(self) -> int | None:
        """Return the place in the window of the first loss that is not finite, or None."""
        losses = self.state_dict().get("loss", torch.empty(0))
        bad = (~losses.isfinite()).nonzero()
        return int(bad[0]) if len(bad) else None

    def take_means(self) -> dict[str, float]:
        """Return the mean of each metric and empty the window."""
        means = {name: values.mean().item() for name, values in self.state_dict().items()}
        self.values.clear()
        return means


class Log:
    """Writer of metrics.jsonl and TensorBoard events; drops what exists after `first_step`."""

    def __init__(self, folder: Path, first_step: int, remote: WandbLog | None = None) -> None:
        self.remote = remote
        self.path = folder / LOG_FILE
        kept = [line for step, line in _lines(self.path) if step <= first_step]
        # whole or not at all: a kill between emptying and writing it would lose all earlier lines
        write_whole(self.path, "".join(f"{line}\n" for line in kept).encode())
        self.board_folder = folder / "tensorboard"
        with explain_write_errors(self.board_folder):
            self.board = SummaryWriter(str(self.board_folder), purge_step=first_step + 1)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Write one line of values; step counts finished steps. Raise WriteError if that fails."""
        line = {name: value if math.isfinite(value) else None for name, value in values.items()}
        with explain_write_errors(self.path), self.path.open("a") as file:
            file.write(json.dumps({"step": step, **line}) + "\n")
        with explain_write_errors(self.board_folder):
            for name, value in values.items():
                self.board.add_scalar(name, value, step)
        if self.remote is not None:
            self.remote.write(step, values)

    def close(self) -> None:
        self.board.close()
        if self.remote is not None:
            self.remote.close()


def means_after(folder: Path, first_step: int) -> dict[str, float]:
    """Return the mean of each metric over the steps after `first_step`, from the log of a run.

    A line counts with all its steps if it ends after `first_step`. Metrics that were not finite are
    left out; the result is empty without a log.
    """
    sums: dict[str, float] = {}
    steps: dict[str, int] = {}
    previous = 0
    for step, text in _lines(folder / LOG_FILE):
        for name, value in json.loads(text).items():
            if step > first_step and name not in RATES and value is not None:
                sums[name] = sums.get(name, 0.0) + value * (step - previous)
                steps[name] = steps.get(name, 0) + step - previous
        previous = step
    return {name: total / steps[name] for name, total in sums.items()}


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield step and text of each complete line of a log.

    A killed run may leave half a line at the end, a dying machine zeros.
    """
    content = path.read_bytes() if path.exists() else b""
    for line in content.decode(errors="replace").split("\n")[:-1]:
        with suppress(ValueError, KeyError, TypeError):
            yield int(json.loads(line)["step"]), line
