"""Whitened cosines and traces against explicit inverses and roots of the covariance."""

import math

import pytest
import torch
from torch import Tensor

from pretrain.parts.whitening import factorize, whitened_cosines, whitened_trace
from tests.rounding import assert_equal_up_to_rounding


def correlated(num_images: int, dim: int) -> Tensor:
    """Two correlated views (2, 1, N, D), features of unequal scale, float64."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(num_images, dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(2, 1, num_images, dim, generator=generator, dtype=torch.float64)
    return (image + 0.7 * noise) * torch.linspace(0.5, 3, dim) + 1


def explicit_products(views: Tensor, ridge: float) -> Tensor:
    """Inner products (2N, 2N) of whitened rows, by the inverse of their covariance."""
    rows = views.flatten(0, 2)
    centered = rows - rows.mean(dim=0)
    dim = rows.shape[1]
    covariance = centered.T @ centered / len(centered)
    ridged = covariance + ridge * covariance.trace() / dim * torch.eye(dim, dtype=rows.dtype)
    products: Tensor = centered @ torch.linalg.inv(ridged) @ centered.T
    return products


def test_cosines_and_gradient_equal_those_by_an_explicit_inverse(subtests: pytest.Subtests) -> None:
    for num_images, dim in [(10, 6), (4, 6), (3, 12), (4, 7)]:
        with subtests.test(num_images=num_images, dim=dim):
            views = correlated(num_images, dim).requires_grad_()
            cosines, _ = whitened_cosines(*views, ridge=0.3)
            inner = explicit_products(views, 0.3)
            length = inner.diagonal().sqrt()
            expected = (inner / torch.outer(length, length))[:num_images, num_images:]
            torch.testing.assert_close(cosines[0], expected)
            weights = torch.randn(expected.shape, dtype=expected.dtype)
            (gradient,) = torch.autograd.grad((cosines[0] * weights).sum(), views)
            (expected_gradient,) = torch.autograd.grad((expected * weights).sum(), views)
            torch.testing.assert_close(gradient, expected_gradient)


def test_batches_are_whitened_separately() -> None:
    views = torch.cat([correlated(5, 4), 2 - correlated(5, 4).flip(2)], dim=1)
    cosines, _ = whitened_cosines(*views, ridge=0.1)
    for batch in (0, 1):
        expected, _ = whitened_cosines(*views[:, batch : batch + 1], ridge=0.1)
        torch.testing.assert_close(cosines[batch], expected[0])


def test_only_the_batch_that_never_factors_stands_aside_with_a_zero_gradient() -> None:
    matrix = torch.diag_embed(torch.tensor([[[4.0, 9.0]], [[1.0, -50.0]]])).requires_grad_()
    result = factorize(matrix, torch.full((2, 1), 0.01))
    assert result.succeeded.tolist() == [True, False]
    assert result.metrics()["whitening_failures"] == 1
    assert_equal_up_to_rounding(result.ridge[0], torch.tensor([0.01]))
    result.mask_failures(result.lower.sum(dim=(1, 2, 3))).sum().backward()
    assert matrix.grad is not None
    assert matrix.grad[0].any()
    assert torch.equal(matrix.grad[1], torch.zeros(1, 2, 2))


def test_infinite_rows_give_nan() -> None:
    result = factorize(torch.full((1, 1, 2, 2), math.nan), torch.full((1, 1), math.nan))
    assert not result.succeeded.any()
    assert result.mask_failures(torch.ones(1)).isnan().all()


@pytest.mark.parametrize("dim", [6, 40])
def test_trace_and_gradient_equal_those_by_an_explicit_inverse(dim: int) -> None:
    views = correlated(7, dim).requires_grad_()
    trace, _ = whitened_trace(*views, ridge=0.3)
    expected = explicit_products(views, 0.3)[:7, 7:].trace()
    torch.testing.assert_close(trace[0], expected)
    (gradient,) = torch.autograd.grad(3 * trace.sum(), views)
    (expected_gradient,) = torch.autograd.grad(3 * expected, views)
    torch.testing.assert_close(gradient, expected_gradient)


@pytest.mark.parametrize("dim", [3, 40])
def test_equal_rows_give_zero_and_a_zero_gradient(dim: int) -> None:
    views = torch.zeros(2, 1, 4, dim).requires_grad_()
    trace, factor = whitened_trace(*views, ridge=0.1)
    trace.sum().backward()
    assert trace.item() == 0
    assert factor.metrics()["whitening_failures"] == 1
    assert views.grad is not None
    assert torch.equal(views.grad, torch.zeros_like(views))


def test_condition_number_is_that_of_the_worst_group() -> None:
    groups = torch.stack([torch.eye(3), torch.diag(torch.tensor([1.0, 4.0, 9.0]))])
    metrics = factorize(groups[None], torch.zeros(1, 2)).metrics()
    assert metrics["condition_number"].item() == pytest.approx(9)
