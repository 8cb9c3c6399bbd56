"""Barlow Twins against equations 1 and 2 by other routes: Zbontar et al., arXiv:2103.03230."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pretrain.methods.barlow_twins import BarlowTwins, barlow_twins_loss
from pretrain.optim import lars
from pretrain.recipes.barlow_twins import BarlowTwinsConfig
from tests.rounding import SHORT_CHAIN, assert_equal_up_to_rounding

EPSILON = 1e-5


def embeddings(num_images: int = 8, dim: int = 5) -> tuple[Tensor, Tensor]:
    """z1, z2 (N, D), correlated, of any scale, float64."""
    generator = torch.Generator().manual_seed(0)
    draw = torch.randn(3, num_images, dim, generator=generator, dtype=torch.float64)
    return 2 * draw[0] + draw[1] + 1, 3 * draw[0] + draw[2] - 2


def equation_1(z1: Tensor, z2: Tensor, weight: float) -> float:
    """Sums one by one, for variances with the epsilon of the released code."""
    num_images, dim = z1.shape
    total = 0.0
    for i in range(dim):
        for j in range(dim):
            first, second = (z[:, k] - z[:, k].mean() for z, k in ((z1, i), (z2, j)))
            lengths = [(z.square().sum() + num_images * EPSILON).sqrt() for z in (first, second)]
            correlation = float((first @ second) / (lengths[0] * lengths[1]))
            total += (1 - correlation) ** 2 if i == j else weight * correlation**2
    return total


@pytest.mark.parametrize(("num_images", "dim"), [(8, 5), (5, 8)])
def test_loss_is_equation_1(num_images: int, dim: int) -> None:
    z1, z2 = embeddings(num_images, dim)
    loss = barlow_twins_loss(z1, z2, off_diagonal_weight=0.3)["loss"]
    assert loss.item() == pytest.approx(equation_1(z1, z2, 0.3))


def tiny_barlow_twins(**changes: Any) -> BarlowTwins:
    """Barlow Twins on a layer with batch norm, of 3x4x4 images."""
    torch.manual_seed(0)
    backbone = nn.Sequential(
        nn.Flatten(), nn.Linear(48, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU()
    )
    settings = {"hidden_dim": 16, "embedding_dim": 6} | changes
    return BarlowTwins(backbone, 12, BarlowTwinsConfig(**settings))


def two_views() -> list[Tensor]:
    torch.manual_seed(1)
    image = torch.randn(8, 3, 4, 4)
    return [image + 0.5 * torch.randn(8, 3, 4, 4) for _ in range(2)]


def test_method_is_the_scaled_loss_of_the_projected_views_and_logs_both_sums() -> None:
    method, views = tiny_barlow_twins(loss_scale=0.25), two_views()
    z1, z2 = (method.encoder(view) for view in views)
    metrics = method(views, 1.0)
    loss = barlow_twins_loss(z1, z2, off_diagonal_weight=5e-3)["loss"]
    torch.testing.assert_close(metrics["loss"], 0.25 * loss)
    torch.testing.assert_close(metrics["invariance"] + 5e-3 * metrics["redundancy"], loss)


def step_of_lars(loss_scale: float, weight_decay: float) -> dict[str, Tensor]:
    """How far each parameter goes in one step."""
    method = tiny_barlow_twins(loss_scale=loss_scale)
    before = {name: weight.detach().clone() for name, weight in method.named_parameters()}
    optimizer = lars(
        method,
        learning_rate=1.0,
        momentum=0.9,
        weight_decay=weight_decay,
        trust_coefficient=0.001,
        exclude_vectors=True,
    )
    method(two_views(), 1.0)["loss"].backward()
    optimizer.step()
    return {name: weight.detach() - before[name] for name, weight in method.named_parameters()}


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_loss_scale_is_the_relative_rate_of_biases_and_batch_norm_if_the_decay_has_it_too(
    weight_decay: float,
) -> None:
    plain, scaled = step_of_lars(1.0, weight_decay), step_of_lars(0.024, 0.024 * weight_decay)
    for name, step in plain.items():
        expected = step if step.ndim > 1 else 0.024 * step
        # a step is a difference of weights of up to one, and has their rounding
        assert_equal_up_to_rounding(scaled[name], expected, magnitude=1.0, operations=SHORT_CHAIN)
