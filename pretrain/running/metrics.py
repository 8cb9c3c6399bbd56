"""Log of a run: metrics.jsonl and TensorBoard, with one mean per window of steps."""

import json
import math
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from pretrain.running.checkpoint import explain_write_errors


class NotFiniteError(ArithmeticError):
    """An infinite or undefined loss."""


class Window:
    """Metrics of the steps since they were last read; nothing waits for the device until then."""

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

    def __init__(self, folder: Path, first_step: int) -> None:
        self.path = folder / "metrics.jsonl"
        kept = [line for line in _lines(self.path) if json.loads(line)["step"] <= first_step]
        with explain_write_errors(self.path):
            self.path.write_text("".join(f"{line}\n" for line in kept))
        self.board_folder = folder / "tensorboard"
        with explain_write_errors(self.board_folder):
            self.board = SummaryWriter(str(self.board_folder), purge_step=first_step + 1)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Write one line of values; step counts finished steps."""
        line = {name: value if math.isfinite(value) else None for name, value in values.items()}
        with explain_write_errors(self.path), self.path.open("a") as file:
            file.write(json.dumps({"step": step, **line}) + "\n")
        with explain_write_errors(self.board_folder):
            for name, value in values.items():
                self.board.add_scalar(name, value, step)

    def close(self) -> None:
        self.board.close()


def _lines(path: Path) -> list[str]:
    """Return the complete lines of a file; a killed run may leave half a line at the end."""
    if not path.exists():
        return []
    return [line for line in path.read_text().split("\n")[:-1] if line.endswith("}")]
