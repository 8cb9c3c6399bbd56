"""Bounds on what rounding alone may do to a number.

A chain of n roundings of values no larger than m moves a result by at most n * eps / 2 * m, to
first order. The source is Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section
3.1. Two ways to compute one number may differ by twice that. So may two CPUs, numbers of threads or
shapes of a batch, since each adds up in another order. Bits are equal only where one machine
repeats one computation in the same shapes.

A sum of n terms is a chain of n roundings at worst. As they fall to both sides, its effect is like
about sqrt(n) of them (same book, section 2.8). So a few hundred roundings bound short chains at
worst, and sums of 10,000 terms and more in practice. Where a step divides by something small (a
temperature, a variance), all roundings before it count that many times: a test says so by its
`magnitude`.

`torch.testing.assert_close` without tolerances is wide enough where values are of about one: in
float32 it allows 84 eps + 11 eps of the value, in float64 4.5e8 eps. `pytest.approx` without
tolerances is for float64: in float32 its 1e-6 of the value are 8 eps.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

A_FEW_HUNDRED = 300
"""Roundings of operations that are not counted: layers, batch statistics, matrix factors."""
SHORT_CHAIN = 30
"""Roundings of a cosine of eight numbers, or of small softmaxes."""


def rounding_error(
    dtype: torch.dtype, *, magnitude: float = 1.0, operations: float = A_FEW_HUNDRED
) -> float:
    """Return how far results of two chains of `operations` roundings may differ.

    magnitude: the largest intermediate value that is rounded. Integers are not rounded.
    """
    if not dtype.is_floating_point:
        return 0.0
    return operations * torch.finfo(dtype).eps * magnitude


def assert_equal_up_to_rounding(
    actual: Any,
    expected: Any,
    *,
    magnitude: float | None = None,
    operations: float = A_FEW_HUNDRED,
    dtype: torch.dtype | None = None,
) -> None:
    """Assert that tensors, or lists or dicts, differ only by rounding.

    The coarser dtype of each pair counts, or `dtype` if both passed through a coarser one.
    `expected` may be a number. Without a magnitude, the largest expected entry is used: sums and
    products keep small entries only to the accuracy of the large ones.
    """
    if isinstance(expected, Mapping):
        assert actual.keys() == expected.keys()
        actual, expected = list(actual.values()), list(expected.values())
    if isinstance(expected, list | tuple):
        for item, second in zip(actual, expected, strict=True):
            assert_equal_up_to_rounding(
                item, second, magnitude=magnitude, operations=operations, dtype=dtype
            )
        return
    ours = actual.detach()
    theirs = expected if isinstance(expected, Tensor) else torch.tensor(expected).double()
    dtypes = {ours.dtype, theirs.dtype} if dtype is None else {dtype}
    largest = _largest(theirs) if magnitude is None else magnitude
    bound = max(rounding_error(d, magnitude=largest, operations=operations) for d in dtypes)
    torch.testing.assert_close(ours.double(), theirs.detach().double(), rtol=0, atol=bound)


def _largest(values: Tensor) -> float:
    return values.detach().double().abs().max().item() if values.numel() else 0.0
