"""Whitened cosines and traces against explicit inverses and roots of the covariance."""

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from pretrain.parts.whitening import Pairs, factorize, whitened_cosines, whitened_trace
from tests.rounding import assert_equal_up_to_rounding


def correlated(num_views: int, num_images: int, dim: int) -> Tensor:
    """Correlated views (1, V, N, D), features of unequal scale, float64."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(num_images, dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(1, num_views, num_images, dim, generator=generator, dtype=torch.float64)
    return (image + 0.7 * noise) * torch.linspace(0.5, 3, dim) + 1


def explicit_inverse(centered: Tensor, ridge: float, *, detach: bool) -> Tensor:
    """Whitening matrix (D, D) of rows (m, D), from their covariance."""
    dim = centered.shape[1]
    covariance = centered.T @ centered / len(centered)
    ridged = covariance + ridge * covariance.trace() / dim * torch.eye(dim, dtype=centered.dtype)
    inverse: Tensor = torch.linalg.inv(ridged.detach() if detach else ridged)
    return inverse


def explicit_cosines(views: Tensor, ridge: float, groups: int, *, detach: bool = False) -> Tensor:
    """Whitened cosines (N, N), with an explicit inverse of each group's covariance."""
    rows = views[0].flatten(0, 1)
    inner = torch.zeros(len(rows), len(rows), dtype=rows.dtype)
    for block in rows.chunk(groups, dim=1):
        centered = block - block.mean(dim=0)
        inner = inner + centered @ explicit_inverse(centered, ridge, detach=detach) @ centered.T
    length = inner.diagonal().sqrt()
    num_images = views.shape[2]
    return (inner / torch.outer(length, length))[:num_images, num_images:]


def test_cosines_and_gradient_equal_those_by_an_explicit_inverse(subtests: pytest.Subtests) -> None:
    sizes = [(10, 6), (4, 6), (3, 12), (4, 7)]
    for detach, (num_images, dim), groups in product([False, True], sizes, [1, 2]):
        with subtests.test(detach=detach, num_images=num_images, dim=dim, groups=groups):
            views = correlated(2, num_images, dim * groups).requires_grad_()
            settings: dict[str, Any] = {"ridge": 0.3, "groups": groups, "detach": detach}
            cosines, _ = whitened_cosines(views, [(0, 1)], **settings)
            expected = explicit_cosines(views, 0.3, groups, detach=detach)
            torch.testing.assert_close(cosines[0, 0], expected)
            weights = torch.randn(expected.shape, dtype=expected.dtype)
            (gradient,) = torch.autograd.grad((cosines[0, 0] * weights).sum(), views)
            (expected_gradient,) = torch.autograd.grad((expected * weights).sum(), views)
            torch.testing.assert_close(gradient, expected_gradient)


def test_pairs_share_the_statistics_of_all_views() -> None:
    views = torch.cat([correlated(2, 5, 4), 2 - correlated(2, 5, 4).flip(2)], dim=1)
    cosines, _ = whitened_cosines(views, [(0, 2), (1, 3)], ridge=0.1)
    halves = views.reshape(1, 2, 10, 4)  # images of views 0 and 1 as one view, 2 and 3 as another
    expected = explicit_cosines(halves, 0.1, 1)
    torch.testing.assert_close(cosines[0, 0], expected[:5, :5])
    torch.testing.assert_close(cosines[0, 1], expected[5:, 5:])


def test_a_failed_factorization_is_tried_with_ten_times_the_ridge(
    subtests: pytest.Subtests,
) -> None:
    for lowest, factor in [(0.0, 1), (-0.05, 10), (-0.5, 100), (-5.0, 1000)]:
        with subtests.test(lowest=lowest, factor=factor):
            matrix = torch.diag(torch.tensor([1.0, lowest])).expand(1, 1, 2, 2)
            result = factorize(matrix, torch.full((1, 1), 0.01))
            assert_equal_up_to_rounding(result.ridge, torch.full((1, 1), 0.01 * factor))
            assert result.succeeded.all()
            expected = matrix + 0.01 * factor * torch.eye(2)
            torch.testing.assert_close(result.lower @ result.lower.mT, expected)


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


MULTI_CROP: Pairs = [(1, 0), (2, 0), (3, 0), (0, 1), (2, 1), (3, 1)]


def explicit_trace(
    views: Tensor, pairs: Pairs, *, ridge: float, groups: int, detach: bool
) -> Tensor:
    """Trace (), by autograd through the covariance and its inverse."""
    total = views.new_zeros(())
    for block in views[0].chunk(groups, dim=2):
        centered = block - block.mean(dim=(0, 1))
        metric = explicit_inverse(centered.flatten(0, 1), ridge, detach=detach)
        for a, b in pairs:
            total = total + ((centered[a] @ metric) * centered[b]).sum() / len(pairs)
    return total


def test_trace_and_gradient_equal_those_by_an_explicit_inverse(subtests: pytest.Subtests) -> None:
    cases = product([False, True], [[(0, 1)], MULTI_CROP], [6, 40], [1, 2])
    for detach, pairs, dim, groups in cases:
        with subtests.test(detach=detach, pairs=pairs, dim=dim, groups=groups):
            views = correlated(1 + max(map(max, pairs)), 7, dim).requires_grad_()
            settings: dict[str, Any] = {"groups": groups, "detach": detach}
            trace, _ = whitened_trace(views, pairs, ridge=0.3, **settings)
            expected = explicit_trace(views, pairs, ridge=0.3, **settings)
            torch.testing.assert_close(trace[0], expected)
            (gradient,) = torch.autograd.grad(3 * trace.sum(), views)
            (expected_gradient,) = torch.autograd.grad(3 * expected, views)
            torch.testing.assert_close(gradient, expected_gradient)


@pytest.mark.parametrize("dim", [3, 40])
def test_equal_rows_give_zero_and_a_zero_gradient(dim: int) -> None:
    views = torch.zeros(1, 2, 4, dim).requires_grad_()
    trace, factor = whitened_trace(views, [(0, 1)], ridge=0.1)
    trace.sum().backward()
    assert trace.item() == 0
    assert factor.metrics()["whitening_failures"] == 1
    assert views.grad is not None
    assert torch.equal(views.grad, torch.zeros_like(views))


def test_condition_number_is_that_of_the_worst_group() -> None:
    groups = torch.stack([torch.eye(3), torch.diag(torch.tensor([1.0, 4.0, 9.0]))])
    metrics = factorize(groups[None], torch.zeros(1, 2)).metrics()
    assert metrics["condition_number"].item() == pytest.approx(9)
