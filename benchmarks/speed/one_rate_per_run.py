"""Training of linear heads in the way of other suites: one rate and one reading per run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import torch

from transfer.backbone import Backbone
from transfer.datasets.images import Images
from transfer.frozen import linear_heads
from transfer.frozen.classifier import Heads
from transfer.frozen.features import Features, Predictions
from transfer.frozen.probe_training import ProbeTraining
from transfer.frozen.running_probe import EpochAccuracies
from transfer.running.not_finite import NotFiniteError


def single(training: ProbeTraining, head: int) -> ProbeTraining:
    """Return the training of one of the heads alone."""
    decay = training.decays[head if len(training.decays) > 1 else 0]
    return replace(training, learning_rates=(training.learning_rates[head],), decays=(decay,))


@contextmanager
def one_rate_per_run() -> Iterator[None]:
    """Let every head be trained by a pass over the images of its own, meanwhile."""
    train_heads, train_and_score = linear_heads.train_heads, linear_heads.train_and_score

    def each_rate(
        backbone: Backbone,
        images: Images,
        training: ProbeTraining,
        seed: int,
        folder: Path,
        curve: EpochAccuracies | None = None,
        peers: tuple[ProbeTraining, ...] = (),
    ) -> Heads:
        count = len(training.learning_rates)
        if count == 1:
            return train_heads(backbone, images, training, seed, folder, curve)
        trained: list[Heads | None] = []
        for head in range(count):
            try:
                own = single(training, head)
                trained.append(train_heads(backbone, images, own, seed, folder, curve))
            except NotFiniteError:  # together with others, a rate that diverges counts as the worst
                trained.append(None)
        return _stacked(trained)

    def own_reading(
        backbone: Backbone,
        images: Images,
        training: ProbeTraining,
        test: Features,
        seed: int,
        folder: Path,
        head: int = 0,
        *shared: object,
    ) -> Predictions:
        return train_and_score(backbone, images, single(training, head), test, seed, folder)

    with (
        patch.object(linear_heads, "train_heads", each_rate),
        patch.object(linear_heads, "train_and_score", own_reading),
    ):
        yield


def _stacked(trained: list[Heads | None]) -> Heads:
    """Return all heads as one; those that have diverged (None) score nan.

    NotFiniteError if all have.
    """
    known = next((heads for heads in trained if heads is not None), None)
    if known is None:
        raise NotFiniteError("all rates diverged; no result is written")
    worst = Heads(torch.full_like(known.weight, torch.nan), torch.full_like(known.bias, torch.nan))
    whole = [worst if heads is None else heads for heads in trained]
    return Heads(
        torch.cat([heads.weight for heads in whole]), torch.cat([heads.bias for heads in whole])
    )
