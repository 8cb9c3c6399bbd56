"""One probe that is being trained: its place in the stream of crops, batches, state on disk."""

import hashlib
import io
from functools import cached_property
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor

from pretrain.running.atomic_files import write_whole
from pretrain.running.errors import NotFiniteError
from transfer.datasets.unchanged import UnprovenFile
from transfer.frozen.classifier import Heads
from transfer.frozen.crops import Maker
from transfer.frozen.features import Features
from transfer.frozen.head_optimizer import HeadOptimizer
from transfer.frozen.probe_training import ProbeTraining
from transfer.metrics import top1
from transfer.running.console import print_line

TORN = (RuntimeError, EOFError, UnpicklingError, ValueError, OSError)
"""Errors of torch.load for a file that was cut short or filled with zeros."""


class EpochAccuracies:
    """Top-1 of each head on given features after each pass over the training images.

    It is only reported; nothing is chosen by it. The value of a diverged head is -1. Passes made
    before the features were replaced are missing.
    """

    def __init__(self, features: Features) -> None:
        self.features = features
        self.top1: list[list[float]] = []

    @cached_property
    def digest(self) -> str:
        """Return a hash of the features and labels."""
        found = hashlib.sha256()
        for tensor in (self.features.labels, self.features.features):
            found.update(repr((tensor.dtype, tuple(tensor.shape))).encode())
            found.update(tensor.cpu().contiguous().numpy().data)
        return found.hexdigest()

    def new(self) -> "EpochAccuracies":
        """Return the same without measurements, for another training."""
        curve = EpochAccuracies(self.features)
        curve.__dict__["digest"] = self.digest  # read once for all
        return curve

    def add(self, heads: Heads) -> None:
        """Measure the heads after one more pass."""
        scores = heads.scores(self.features.features)
        labels = self.features.labels
        self.top1.append([top1(s, labels) if bool(s.isfinite().all()) else -1.0 for s in scores])


class SavedTraining(UnprovenFile):
    """State of the training on disk, replaced as a whole at every save."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.maker: Maker | None = None
        """Processor of the crops so far; None if unknown."""
        path.parent.mkdir(parents=True, exist_ok=True)

    def restore(self, optimizer: HeadOptimizer, curve: EpochAccuracies | None = None) -> int:
        """Load the saved state, if any; return its number of finished steps.

        A state that a dying machine has torn counts as none: the training starts anew.
        """
        path = self.newest
        if not path.exists():
            return 0
        content = io.BytesIO(path.read_bytes())  # an unreadable disk is another error
        try:
            state = torch.load(content, map_location="cpu", weights_only=True)
        except TORN as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            print_line("train", f"{path} is torn ({reason}); the training starts anew")
            return 0
        optimizer.load(state)
        self.maker = state.get("maker")
        if curve is not None and state.get("curve_of") == curve.digest:
            curve.top1 = state["curve"]
        return int(state["step"])

    def save(
        self, optimizer: HeadOptimizer, step: int, curve: EpochAccuracies | None = None
    ) -> None:
        """Save the state after `step` steps."""
        content = io.BytesIO()
        state = {
            **optimizer.state(),
            "step": step,
            "maker": self.maker,
            "curve": curve.top1 if curve else [],
            "curve_of": curve.digest if curve else "",
        }
        torch.save(state, content)
        write_whole(self.private, content.getvalue(), "--runs")


class RunningProbe:
    """A training that takes its batches from a stream of features; it continues a saved one."""

    def __init__(
        self,
        training: ProbeTraining,
        num_images: int,
        optimizer: HeadOptimizer,
        saved: SavedTraining,
        curve: EpochAccuracies | None = None,
    ) -> None:
        self.training, self.optimizer, self.saved, self.curve = training, optimizer, saved, curve
        self.ends = training.pass_ends(num_images)
        self.step = saved.restore(optimizer, curve)
        if curve is not None and not curve.top1 and self.step in self.ends:
            curve.add(optimizer.heads())
        self._waiting: list[tuple[Tensor, Tensor]] = []
        """Features and labels of images from `place` on, fewer than a batch."""

    @property
    def place(self) -> int:
        """Return the number of images of the stream that updates have used."""
        return self.step * self.training.batch_size

    @property
    def end(self) -> int:
        """Return the number of images of the stream after which the training ends."""
        return self.ends[-1] * self.training.batch_size

    @property
    def finished(self) -> bool:
        """Return whether all steps are done."""
        return self.step >= self.ends[-1]

    def can_join(self, other: "RunningProbe") -> bool:
        """Return whether it can go along with another probe from that one's place.

        A probe of larger batches may be less than a batch behind; one that is further behind would
        delay the other.
        """
        return not self.finished and self.place > other.place - self.training.batch_size

    def receive(self, place: int, features: Tensor, labels: Tensor) -> None:
        """Train on the features (n, C) and labels (n,) of the stream's images from a place on.

        Images that updates have used already are ignored. NotFiniteError if all heads diverge.
        """
        used = self.place + sum(len(waiting) for _, waiting in self._waiting) - place
        if used < len(labels) and not self.finished:
            self._waiting.append((features[used:], labels[used:]))
        size = self.training.batch_size
        while not self.finished and sum(len(waiting) for _, waiting in self._waiting) >= size:
            parts = list(zip(*self._waiting, strict=True))
            batch, classes = (part[0] if len(part) == 1 else torch.cat(part) for part in parts)
            self._update(batch[:size], classes[:size])
            self._waiting = [(batch[size:], classes[size:])] if len(classes) > size else []

    def _update(self, features: Tensor, labels: Tensor) -> None:
        losses = self.optimizer.step(features, labels, self.step / self.ends[-1])
        self.step += 1
        # reading a loss waits for the GPU, so most steps are not looked at
        if (self.step - 1) % 50 == 0 or self.finished:
            _require_finite(losses, self.step - 1)
        if self.curve is not None and self.step in self.ends:
            self.curve.add(self.optimizer.heads())

    def save(self) -> None:
        """Write the state to disk."""
        self.saved.save(self.optimizer, self.step, self.curve)


def _require_finite(losses: Tensor, step: int) -> None:
    if not bool(losses.isfinite().any()):
        raise NotFiniteError(
            f"step {step}: the loss of all {len(losses)} heads is infinite or not a number; "
            "no result is written. Check the backbone's features, or lower the rates"
        )
