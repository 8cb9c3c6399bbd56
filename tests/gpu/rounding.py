"""Bounds on how far rounding alone may move a network's results.

How much a deep network amplifies a rounding cannot be counted, so it is measured. All weights and
images are changed by one unit of rounding with random signs, and the results move by `moved`. A sum
of k products rounds k times, which has the effect of changing each product by about sqrt(k) units.
The source is Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 2.8 and 3.1.
The longest sums of a ResNet have 4,608 terms: 68 units. Two devices differ by up to twice that.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

FLOAT32_UNITS = 140.0
"""Allowed difference of float32 results between devices, in units of rounding."""
BFLOAT16_UNITS = 3.0
"""Allowed difference of bfloat16 results, in units of rounding.

A layer rounds its weights, its input and its output by at most half a unit each, forward and
backward, while products are summed in float32.
"""
ROUNDINGS = {torch.float32: 300.0, torch.bfloat16: 10.0}
"""Allowed difference of results without products (running means), in units of rounding."""

Results = Mapping[str, Tensor]
"""Results of a computation by name, on the CPU."""


def require_same_names(actual: Results, expected: Results) -> None:
    """Raise a ValueError if only one of two computations has a result."""
    if unmatched := sorted(actual.keys() ^ expected.keys()):
        raise ValueError(f"only one of the two computations has {', '.join(unmatched[:5])}")


def difference(
    actual: Tensor, expected: Tensor, moved: Sequence[Tensor], units: float, dtype: torch.dtype
) -> tuple[float, float]:
    """Return distance and bound of one result, relative to its length.

    moved: the expected result after all inputs were changed by one unit of rounding of the dtype.
    Integers must be equal. Results have any shape and no gradient.
    """
    if not expected.is_floating_point():
        return float(not torch.equal(actual, expected)), 0.0
    length = _length(expected.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)) or 1.0
    amplified = max((_distance(item, expected) for item in moved), default=0.0)
    rounding = ROUNDINGS[dtype] * torch.finfo(dtype).eps * length if moved else 0.0
    return _distance(actual, expected) / length, (units * amplified + rounding) / length


def share_of_bound(difference: tuple[float, float]) -> float:
    """Return the distance in units of the bound.

    An undefined distance counts as infinite.
    """
    distance, bound = difference
    if distance == 0:
        return 0.0
    share = distance / bound if bound else math.inf
    return share if math.isfinite(share) else math.inf


def perturb(tensors: Iterable[Tensor], dtype: torch.dtype, generator: torch.Generator) -> None:
    """Change tensors in place by one unit of rounding with random signs.

    They have any shape.
    """
    eps = torch.finfo(dtype).eps
    with torch.no_grad():
        for tensor in tensors:
            bits = torch.randint(0, 2, tensor.shape, generator=generator, dtype=torch.int8)
            tensor.mul_(bits.to(tensor).mul_(2 * eps).add_(1 - eps))


def _distance(first: Tensor, second: Tensor) -> float:
    """Return the length of the difference.

    Entries that are NaN in both are equal.
    """
    same = (first == second) | (first.isnan() & second.isnan())
    return _length((first - second).masked_fill_(same, 0.0))


def _length(values: Tensor) -> float:
    """Return the length of all entries as one vector."""
    return float(torch.linalg.vector_norm(values, dtype=torch.float64))
