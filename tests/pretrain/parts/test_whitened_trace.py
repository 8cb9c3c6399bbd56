"""The whitened trace and its closed-form gradient against autograd through an explicit inverse."""

import pytest
import torch
from torch import Tensor

from pretrain.parts.whitening import Pairs, Whitening, whitened_trace

MULTI_CROP: Pairs = [(1, 0), (2, 0), (3, 0), (0, 1), (2, 1), (3, 1)]


def crops(num_views: int, num_images: int, dim: int) -> Tensor:
    """(1, V, N, D), correlated views."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(num_images, dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(1, num_views, num_images, dim, generator=generator, dtype=torch.float64)
    return (image + 0.7 * noise) * torch.linspace(0.5, 3, dim) + 1


def explicit_trace(views: Tensor, pairs: Pairs, whitening: Whitening) -> Tensor:
    """A scalar, by autograd through the covariance and its inverse."""
    total = views.new_zeros(())
    for block in views[0].chunk(whitening.groups, dim=2):
        centered = block - block.mean(dim=(0, 1))
        rows = centered.flatten(0, 1)
        covariance = rows.T @ rows / len(rows)
        identity = torch.eye(rows.shape[1], dtype=rows.dtype)
        ridged = covariance + whitening.ridge * covariance.trace() / rows.shape[1] * identity
        metric = torch.linalg.inv(ridged.detach() if whitening.detach_covariance else ridged)
        for a, b in pairs:
            total = total + ((centered[a] @ metric) * centered[b]).sum() / len(pairs)
    return total


def test_trace_and_gradient_equal_those_by_an_explicit_inverse(subtests: pytest.Subtests) -> None:
    for detach in [False, True]:
        for pairs in [[(0, 1)], MULTI_CROP]:
            for dim in [6, 40]:
                for groups in [1, 2]:
                    with subtests.test(detach=detach, pairs=pairs, dim=dim, groups=groups):
                        views = crops(1 + max(map(max, pairs)), 7, dim).requires_grad_()
                        whitening = Whitening(ridge=0.3, groups=groups, detach_covariance=detach)
                        trace, _ = whitened_trace(views, pairs, whitening)
                        expected = explicit_trace(views, pairs, whitening)
                        torch.testing.assert_close(trace[0], expected)
                        (gradient,) = torch.autograd.grad(3 * trace.sum(), views)
                        (expected_gradient,) = torch.autograd.grad(3 * expected, views)
                        torch.testing.assert_close(gradient, expected_gradient)


def test_gradient_without_a_ridge_equals_that_by_an_explicit_inverse() -> None:
    views = crops(2, 9, 5).requires_grad_()
    trace, _ = whitened_trace(views, [(0, 1)], Whitening(ridge=0.0))
    expected = explicit_trace(views, [(0, 1)], Whitening(ridge=0.0))
    (gradient,) = torch.autograd.grad(trace.sum(), views)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, views)[0])


@pytest.mark.parametrize("dim", [6, 40])
def test_a_batch_of_pairs_gives_the_trace_and_gradient_of_each(dim: int) -> None:
    views = torch.cat([crops(2, 7, dim), crops(2, 7, dim).square()]).requires_grad_()
    together, _ = whitened_trace(views, [(0, 1)], Whitening(ridge=0.1))
    singles = [whitened_trace(v[None], [(0, 1)], Whitening(ridge=0.1))[0] for v in views]
    torch.testing.assert_close(together, torch.cat(singles))
    weights = torch.tensor([1.0, -2.0], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(weights @ together, views)
    (expected,) = torch.autograd.grad(weights @ torch.cat(singles), views)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("dim", [3, 40])
def test_equal_rows_give_zero_and_a_zero_gradient(dim: int) -> None:
    views = torch.zeros(1, 2, 4, dim).requires_grad_()
    trace, factor = whitened_trace(views, [(0, 1)], Whitening(ridge=0.1))
    trace.sum().backward()
    assert trace.item() == 0
    assert factor.num_failures() == 1
    assert views.grad is not None
    assert torch.equal(views.grad, torch.zeros_like(views))
