"""The data type that losses are computed in, whatever that of the networks is."""

import torch
from torch import Tensor


def at_least_float32(rows: Tensor) -> Tensor:
    """Return rows of any shape in float32, or in float64 if they have it.

    Variances and products of bfloat16 numbers would be mostly rounding errors.
    """
    return rows.to(torch.promote_types(rows.dtype, torch.float32))
