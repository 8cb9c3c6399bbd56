"""Errors and checks of features, for tasks and functions on features."""

from collections.abc import Callable

import torch
from torch import Tensor

from pretrain.running.errors import NotFiniteError, SuiteError

ROWS_PER_CHUNK = 65_536


class FeatureError(SuiteError, ValueError):
    """Invalid images, features, labels or settings in the Python API."""


def require_finite(features: Tensor, name: Callable[[int], str], origin: str) -> None:
    """Raise NotFiniteError unless all features (n, C) are finite.

    name: returns a name for the row of this index, for the message. origin: follows the name.
    """
    finite = [chunk.isfinite().all(dim=1) for chunk in features.split(ROWS_PER_CHUNK)]
    bad = (~torch.cat(finite)).nonzero().flatten().tolist()
    if bad:
        suffix = f", and {len(bad) - 1} other rows" if len(bad) > 1 else ""
        raise NotFiniteError(
            f"the features of {name(bad[0])} {origin} are infinite or not a number{suffix}, out of "
            f"{len(features)} rows. No result is computed"
        )


def require_converged(scores: Tensor, learning_rate: float) -> None:
    """Raise NotFiniteError if a training has diverged, so that its scores are not finite."""
    if not bool(scores.isfinite().all()):
        raise NotFiniteError(
            f"the classifier diverged at learning rate {learning_rate:g}. No result is computed. "
            "Lower the learning rate, or scale the features"
        )
