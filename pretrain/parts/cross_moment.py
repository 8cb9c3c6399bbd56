"""Correlation of different features, computed with the smaller of two matrices."""

from torch import Tensor


def off_diagonal_squares(first: Tensor, second: Tensor) -> Tensor:
    """Return the sum of squares off the diagonal of first' second, for (N, D) each: a scalar."""
    num_rows, dim = first.shape
    if dim > num_rows:
        # |A' B|^2 is the inner product of AA' and BB': N x N matrices in place of a D x D one
        total = ((first @ first.T) * (second @ second.T)).sum()
    else:
        total = (first.T @ second).square().sum()
    return total - (first * second).sum(dim=0).square().sum()
