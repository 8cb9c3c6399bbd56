"""One probe that is being trained: its place in the stream of crops, batches, state on disk."""

import io
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor

from pretrain.running.atomic_files import write_whole
from pretrain.running.console import print_line
from pretrain.running.errors import NotFiniteError
from transfer.datasets.unchanged import UnprovenFile
from transfer.frozen.classifier import Heads
from transfer.frozen.crops import Maker
from transfer.frozen.feature_cache import Features
from transfer.frozen.head_optimizer import HeadOptimizer
from transfer.frozen.probe_training import ProbeTraining

TORN = (RuntimeError, EOFError, UnpicklingError, ValueError, OSError)
"""Errors of torch.load for a file that was cut short or filled with zeros."""


class RunningProbe(UnprovenFile):
    """A training that takes its batches from a stream of features; it continues a saved one.

    The state in its file is replaced as a whole at every save.
    """

    def __init__(
        self,
        path: Path,
        training: ProbeTraining,
        num_images: int,
        heads: Heads,
        where: torch.device,
        tested: Features | None = None,
    ) -> None:
        super().__init__(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.training, self.tested = training, tested
        self.optimizer = HeadOptimizer(heads, training, where)
        self.ends = training.pass_ends(num_images)
        self.step = 0
        self.maker: Maker | None = None
        """Processor of the crops so far; None if unknown."""
        self.curve: list[list[float]] = []
        """Top-1 of each head on the tested features after each pass, which is only reported; passes
        before these features were replaced are missing."""
        self._restore()
        if not self.curve and self.step in self.ends:
            self._test()
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
        looked_at = (self.step - 1) % 50 == 0 or self.finished
        if looked_at and not bool(losses.isfinite().any()):
            raise NotFiniteError(
                f"step {self.step - 1}: the loss of all {len(losses)} heads is infinite or not a "
                "number; no result is written. Check the backbone's features, or lower the rates"
            )
        if self.step in self.ends:
            self._test()

    def _test(self) -> None:
        if self.tested is not None:
            self.curve.append(self.optimizer.heads().accuracies(self.tested))

    def save(self) -> None:
        """Write the state to disk."""
        content = io.BytesIO()
        state = {
            **self.optimizer.state(),
            "step": self.step,
            "maker": self.maker,
            "curve": self.curve,
            "curve_of": self.tested.digest if self.tested else "",
        }
        torch.save(state, content)
        write_whole(self.private, content.getvalue(), "--runs")

    def _restore(self) -> None:
        """Load the saved state, if any; one that a dying machine has torn counts as none."""
        path = self.newest
        if not path.exists():
            return
        content = io.BytesIO(path.read_bytes())  # an unreadable disk is another error
        try:
            state = torch.load(content, map_location="cpu", weights_only=True)
        except TORN as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            print_line("train", f"{path} is torn ({reason}); the training starts anew")
            return
        self.optimizer.load(state)
        self.step, self.maker = int(state["step"]), state["maker"]
        if self.tested is not None and state["curve_of"] == self.tested.digest:
            self.curve = state["curve"]
