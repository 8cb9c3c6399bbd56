"""Squares beside the diagonal of a product, entry by entry."""

import pytest
import torch
from torch import Tensor

from pretrain.parts.losses import off_diagonal_squares
from tests.rounding import assert_equal_up_to_rounding


def rows(num_rows: int, dim: int) -> tuple[Tensor, Tensor]:
    """Two of (N, D), correlated."""
    generator = torch.Generator().manual_seed(0)
    draw = torch.randn(3, num_rows, dim, generator=generator, dtype=torch.float64)
    return draw[0] + draw[1], draw[0] + draw[2]


def entry_by_entry(first: Tensor, second: Tensor) -> Tensor:
    product = first.T @ second
    dim = len(product)
    squares = [product[i, j] ** 2 for i in range(dim) for j in range(dim) if i != j]
    return torch.stack(squares).sum()


@pytest.mark.parametrize(("num_rows", "dim"), [(9, 4), (5, 5), (4, 9)])
def test_more_features_than_rows_or_fewer_the_sum_and_its_gradient_are_the_same(
    num_rows: int, dim: int
) -> None:
    first, second = (part.requires_grad_() for part in rows(num_rows, dim))
    found, expected = off_diagonal_squares(first, second), entry_by_entry(first, second)
    torch.testing.assert_close(found, expected)
    gradient = torch.autograd.grad(found, [first, second])
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, [first, second]))


@pytest.mark.parametrize(("num_rows", "dim"), [(9, 4), (4, 9)])
def test_float32_agrees_with_float64(num_rows: int, dim: int) -> None:
    first, second = rows(num_rows, dim)
    found = off_diagonal_squares(first.float(), second.float())
    assert_equal_up_to_rounding(found, off_diagonal_squares(first, second))
