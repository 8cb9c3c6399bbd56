"""Results of operations with CUDA-only kernels or data-dependent shapes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

NUM_KEPT = 1000
"""Number of boxes that non-maximum suppression keeps, if there are enough."""


def answer_read(name: str, args: Any, *, true: bool) -> Any:
    """Return the value that the host reads from the device.

    None if the operation reads nothing. Conditions are `true`, other numbers are 1, and masks are
    true everywhere.
    """
    if name == "_local_scalar_dense":
        kinds = {torch.bool: true, torch.float32: 1.0, torch.float64: 1.0}
        return kinds.get(args[0].dtype, 1)
    if name in ("equal", "allclose"):
        return true
    if name == "nonzero":
        return args[0].new_empty((args[0].numel(), args[0].ndim), dtype=torch.int64)
    if name == "masked_select":
        return args[0].new_empty(args[0].numel())
    if name == "nms":
        return args[0].new_empty(min(NUM_KEPT, len(args[0])), dtype=torch.int64)
    return None


def run_without_kernel(func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation; masks select everything, and SyncBatchNorm needs no kernels."""
    if name in SYNC_NORM:
        return SYNC_NORM[name](*args)
    if name == "_fused_sgd_":
        return _fused_sgd(*args)
    if name in ("index", "index_put", "index_put_"):
        positions: list[Tensor | None] = []
        for index in args[1]:
            positions += _all_places(index) if _is_mask(index) else [index]
        args = (args[0], positions, *args[2:])
    return func(*args, **kwargs)


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _all_places(mask: Tensor) -> list[Tensor | None]:
    """Return one index per axis of a mask that is true everywhere."""
    return [mask.new_zeros(mask.numel(), dtype=torch.int64) for _ in range(mask.ndim)]


def _fused_sgd(weights: list[Tensor], gradients: list[Tensor], momenta: list[Tensor]) -> None:
    """Check the same conditions as the fused kernel of SGD."""
    for lists in (gradients, momenta):
        for weight, second in zip(weights, lists, strict=False):
            result = (second.dtype, second.device, second.shape, second.stride())
            expected = (weight.dtype, weight.device, weight.shape, weight.stride())
            if result != expected:
                raise ValueError(f"a gradient or momentum {result} of a weight {expected}")


def _statistics(rows: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    mean = rows.new_empty(rows.shape[1], dtype=torch.float32)
    return mean, torch.empty_like(mean)


def _reduced_gradients(_: Tensor, rows: Tensor, *__: Any) -> tuple[Tensor, ...]:
    return (*_statistics(rows), *_statistics(rows))


SYNC_NORM: dict[str, Callable[..., Any]] = {
    "batch_norm_stats": _statistics,
    "batch_norm_gather_stats_with_counts": _statistics,
    "batch_norm_elemt": lambda rows, *_: torch.empty_like(rows),
    "batch_norm_backward_reduce": _reduced_gradients,
    "batch_norm_backward_elemt": lambda _, rows, *__: torch.empty_like(rows),
}
"""CUDA-only operations of nn.SyncBatchNorm: name -> function that returns empty results."""
