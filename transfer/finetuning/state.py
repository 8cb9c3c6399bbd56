"""The state of a training, its checkpoint, and its summary."""

import resource
import time
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pretrain.running.atomic_files import load_stage, save_stage
from transfer.finetuning.schedule import TrainingSchedule

SMOOTHED = 100
"""Number of last iterations over which the final loss is averaged."""
CURVE_POINTS = 100


@dataclass(kw_only=True, eq=False)
class Training:
    """Network, optimizer, schedule and changing state of a training."""

    network: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: TrainingSchedule
    folder: Path
    """Folder that only this training uses."""
    name: str = ""
    iteration: int = 0
    """Finished iterations."""
    finished: bool = False
    """True when the norm statistics are computed, too."""
    seconds: float = 0.0
    """Training time before `since`."""
    since: float = field(default_factory=time.monotonic)
    peak_memory_gb: float = 0.0
    names: tuple[str, ...] = ()
    """Names of the losses, in the order of `unread` and `losses`."""
    unread: list[Tensor] = field(default_factory=list)
    """Losses (number of losses,) since the last read, on the device."""
    losses: list[Tensor] = field(default_factory=list)
    """Losses (iterations, number of losses) of earlier iterations, averaged over processes."""

    @cached_property
    def scaler(self) -> torch.amp.GradScaler:
        """Loss scaler; only enabled in float16."""
        return torch.amp.GradScaler("cuda", enabled=self.schedule.precision == "float16")

    @property
    def file(self) -> Path:
        """Checkpoint file of the state."""
        return self.folder / "training.stage"

    def discard(self) -> None:
        """Delete the state."""
        self.file.unlink(missing_ok=True)


PLAIN = ("iteration", "finished", "seconds", "peak_memory_gb", "names")
"""Fields that the checkpoint stores unchanged."""


def save(training: Training) -> None:
    """Write the state atomically; a finished training is saved without optimizer state."""
    now = time.monotonic()
    training.seconds += now - training.since
    training.since = now
    training.peak_memory_gb = max(training.peak_memory_gb, peak_memory_gb())
    state: dict[str, Any] = {name: getattr(training, name) for name in PLAIN}
    state |= {"losses": _all_losses(training), "network": training.network.state_dict()}
    if not training.finished:
        momenta = {
            name: dict(training.optimizer.state.get(parameter, {}))
            for name, parameter in training.network.named_parameters()
        }
        state |= {"scaler": training.scaler.state_dict(), "momenta": momenta}
    save_stage(training.file, state)


def restore(training: Training) -> str:
    """Restore the saved state; return the reason if that fails.

    It returns "" on success, or if the file is missing.
    """
    state = load_stage(training.file)
    if state is None:
        return "is damaged" if training.file.exists() else ""
    if "network" not in state:
        return "is of an earlier version"
    for name in PLAIN:
        setattr(training, name, state[name])
    training.losses = [state["losses"]]
    training.network.load_state_dict(state["network"])
    momenta = state.get("momenta", {})
    for name, parameter in training.network.named_parameters():
        stored = momenta.get(name)
        # a tensor in files of earlier versions
        stored = {"momentum_buffer": stored} if isinstance(stored, Tensor) else stored or {}
        for key, value in stored.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                # fused kernels require the layout of the weights
                value = torch.empty_like(parameter).copy_(value)
            training.optimizer.state[parameter][key] = value
    if state.get("scaler"):
        training.scaler.load_state_dict(state["scaler"])
    return ""


def summary(training: Training) -> dict[str, Any]:
    """Return the details of a finished training for its record.

    losses: by name, means over the last 100 iterations. curve: finished iterations, and mean total
    loss since the previous point. seconds: summed over all runs of an interrupted training.
    peak_memory_gb: of the first process, on the GPU if available.
    """
    losses = _all_losses(training)
    final, total = losses[-SMOOTHED:].mean(dim=0), losses.sum(dim=1)
    num_points = min(CURVE_POINTS, len(total))
    ends = torch.linspace(0, len(total), num_points + 1, dtype=torch.float32).round().int()
    return {
        "iterations": training.iteration,
        "losses": dict(zip(training.names, final.tolist(), strict=True)),
        "curve": tuple(
            (end, float(total[start:end].mean())) for start, end in pairwise(ends.tolist())
        ),
        "seconds": training.seconds,
        "peak_memory_gb": training.peak_memory_gb,
    }


def peak_memory_gb() -> float:
    """Return the peak GPU memory in GB; without GPU, this process's."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def _all_losses(training: Training) -> Tensor:
    """Return all losses (iterations, number of losses)."""
    return torch.cat([torch.zeros(0, len(training.names), dtype=torch.float32), *training.losses])
