"""Check that features are finite, for tasks and functions on features."""

from collections.abc import Callable

import torch
from torch import Tensor

from pretrain.running.errors import NotFiniteError

ROWS_PER_CHUNK = 65_536


def require_finite(features: Tensor, name: Callable[[int], str]) -> None:
    """Raise NotFiniteError unless all features (n, C) are finite.

    name: returns a name for the row of this index, for the message.
    """
    chunks = features.split(ROWS_PER_CHUNK)
    # the sums are a fast test, since NaN and infinity propagate; an overflow is caught below
    if all(bool(chunk.sum().isfinite()) for chunk in chunks):
        return
    bad = torch.cat([~chunk.isfinite().all(dim=1) for chunk in chunks]).nonzero().flatten().tolist()
    if bad:
        suffix = f", and {len(bad) - 1} other rows" if len(bad) > 1 else ""
        raise NotFiniteError(
            f"the features of {name(bad[0])} are infinite or not a number{suffix}, out of "
            f"{len(features)} rows. No result is computed"
        )
