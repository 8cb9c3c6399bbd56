"""How strongly different features go together, without a matrix where a smaller one will do."""

from torch import Tensor


def off_diagonal_squares(first: Tensor, second: Tensor) -> Tensor:
    """Sum of squares of first' second, (N, D) each, beside its diagonal: a scalar.

    |A' B|^2 is the inner product of AA' and BB', so more features than rows need no D x D matrix.
    """
    num_rows, dim = first.shape
    if dim > num_rows:
        total = ((first @ first.T) * (second @ second.T)).sum()
    else:
        total = (first.T @ second).square().sum()
    return total - (first * second).sum(dim=0).square().sum()
