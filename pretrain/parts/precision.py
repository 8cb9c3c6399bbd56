"""Numbers that losses are computed in, whatever the networks are."""

import torch
from torch import Tensor


def at_least_float32(rows: Tensor) -> Tensor:
    """float64 stays, bfloat16 grows: moments of coarse numbers would be mostly rounding."""
    return rows.to(torch.promote_types(rows.dtype, torch.float32))
