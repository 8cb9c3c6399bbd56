"""The check that features are finite, for tasks and for functions on features alike."""

from collections.abc import Callable

import torch
from torch import Tensor

from pretrain.running.errors import NotFiniteError

ROWS_PER_PART = 65_536


def require_finite(features: Tensor, name: Callable[[int], str]) -> None:
    """Raise NotFiniteError for the first row of features (n, C) with a value that is not finite.

    name: function from the row's index to a phrase that names it.
    """
    parts = features.split(ROWS_PER_PART)
    # the sums are a fast test: NaN and infinity propagate; if only a sum overflows, no row is bad
    if all(bool(part.sum().isfinite()) for part in parts):
        return
    bad = torch.cat([~part.isfinite().all(dim=1) for part in parts]).nonzero().flatten().tolist()
    if bad:
        others = f", and so are those of {len(bad) - 1} other rows" if len(bad) > 1 else ""
        raise NotFiniteError(
            f"the features of {name(bad[0])} are infinite or not a number{others}, of "
            f"{len(features)} in all. No result is computed"
        )
