"""W-MSE against its equations, computed differently: Ermolov et al., arXiv:2007.06346."""

from itertools import combinations

import pytest
import torch
from torch import Tensor

from pretrain.methods.wmse import wmse_loss
from pretrain.recipes.wmse import WMSEConfig
from tests.rounding import assert_equal_up_to_rounding
from tests.tiny_methods import tiny_batch, tiny_method


def embeddings(num_views: int = 2, num_images: int = 12, dim: int = 3) -> Tensor:
    """Correlated views (V, N, D), features of unequal scale, float64."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(num_images, dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(num_views, num_images, dim, generator=generator, dtype=torch.float64)
    return (image + 0.5 * noise) * torch.linspace(0.5, 3, dim, dtype=torch.float64) + 1


def explicitly_whitened(rows: Tensor) -> Tensor:
    """Whitened (m, D), by inverting the covariance's lower Cholesky factor."""
    inverse = torch.linalg.inv(torch.linalg.cholesky(rows.T.cov()))
    return torch.stack([inverse @ (row - rows.mean(dim=0)) for row in rows])


def equation_6(views: Tensor) -> float:
    """Return the loss of one sub-batch (V, m, D), distance by distance."""
    white = [explicitly_whitened(view) for view in views]
    total, count = 0.0, 0
    for first, second in combinations(white, 2):
        for a, b in zip(first, second, strict=True):
            total += float((a / a.norm() - b / b.norm()).square().sum())
            count += 1
    return total / count


@pytest.mark.parametrize("num_views", [2, 4])
def test_loss_is_equation_6_averaged_over_sub_batches(num_views: int) -> None:
    views = embeddings(num_views)
    orders = torch.stack([torch.randperm(12), torch.randperm(12)])
    expected = [equation_6(views[:, sub_batch]) for order in orders for sub_batch in order.split(6)]
    loss = wmse_loss(views, orders, whitening_size=6)["loss"]
    assert loss.item() == pytest.approx(sum(expected) / 4)


@pytest.mark.parametrize("value", [0.0, 0.3])
def test_a_sub_batch_that_cannot_be_whitened_counts_as_zero_without_a_gradient(
    value: float,
) -> None:
    views = embeddings().float()
    views[0, :6] = value
    views.requires_grad_()
    loss = wmse_loss(views, torch.arange(12)[None], whitening_size=6)["loss"]
    (gradient,) = torch.autograd.grad(loss, views)
    assert_equal_up_to_rounding(loss, equation_6(views.detach().double()[:, 6:]) / 2)
    assert not gradient[:, :6].any()
    assert gradient[:, 6:].isfinite().all()


def test_too_few_rows_to_whiten_are_refused_unless_there_is_a_ridge() -> None:
    with pytest.raises(ValueError, match="at least twice --embedding-dim"):
        WMSEConfig(whitening_size=64, embedding_dim=64)
    WMSEConfig(whitening_size=64, embedding_dim=64, ridge=0.1)


@pytest.mark.parametrize("num_views", [2, 4])
def test_a_step_is_the_loss_of_the_projected_views_in_orders_drawn_anew(num_views: int) -> None:
    method = tiny_method("wmse", num_views=num_views, num_orders=2)
    views = tiny_batch(method).views
    torch.manual_seed(2)
    metrics = method(views, 1.0)
    torch.manual_seed(2)
    orders = torch.stack([torch.randperm(8), torch.randperm(8)])
    projected = torch.stack([method.encoder(view) for view in views])
    config = method.config
    expected = wmse_loss(projected, orders, whitening_size=4, ridge=config.ridge)["loss"]
    torch.testing.assert_close(metrics["loss"], expected)
    assert len(views) == num_views
