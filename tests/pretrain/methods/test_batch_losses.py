"""Losses over a batch's images against their equations, term by term.

SimCLR: Chen et al., arXiv:2002.05709; Barlow Twins: Zbontar et al., arXiv:2103.03230; VICReg:
Bardes et al., arXiv:2105.04906.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from pretrain.methods.barlow_twins import barlow_twins_loss
from pretrain.methods.simclr import nt_xent_loss
from pretrain.methods.vicreg import vicreg_loss
from pretrain.methods.zero_cl import zero_cl_loss
from tests.rounding import assert_equal_up_to_rounding
from tests.tiny_methods import tiny_batch, tiny_method

Metrics = dict[str, Tensor]


def embeddings(num_images: int, dim: int) -> tuple[Tensor, Tensor]:
    """z1, z2 (N, D), correlated, with standard deviations around one, float64."""
    generator = torch.Generator().manual_seed(0)
    draw = torch.randn(3, num_images, dim, generator=generator, dtype=torch.float64)
    scale = torch.linspace(0.2, 2, dim, dtype=torch.float64)
    return scale * (draw[0] + 0.5 * draw[1]) + 1, scale * (draw[0] + 0.5 * draw[2]) - 1


def nt_xent(z1: Tensor, z2: Tensor) -> float:
    """Eq. 1 and algorithm 1 as printed.

    Views 2k - 1 and 2k are a pair.
    """
    z = torch.stack([z1, z2], dim=1).flatten(0, 1)

    def loss(i: int, j: int) -> Tensor:
        powers = [(cosine_similarity(z[i], second, dim=0) / 0.1).exp() for second in z]
        return -(powers[j] / (sum(powers) - powers[i])).log()

    pairs = [loss(k, k + 1) + loss(k + 1, k) for k in range(0, len(z), 2)]
    return float(sum(pairs)) / len(z)


def barlow_twins(z1: Tensor, z2: Tensor) -> float:
    """Eq. 1 and 2, with the released code's epsilon in variances."""
    num_images, dim = z1.shape
    total = 0.0
    for i in range(dim):
        for j in range(dim):
            first, second = (z[:, k] - z[:, k].mean() for z, k in ((z1, i), (z2, j)))
            lengths = [(z.square().sum() + num_images * 1e-5).sqrt() for z in (first, second)]
            correlation = float((first @ second) / (lengths[0] * lengths[1]))
            total += (1 - correlation) ** 2 if i == j else 0.3 * correlation**2
    return total


def vicreg(z1: Tensor, z2: Tensor) -> float:
    """Eq. 6 with weights 2, 3 and 0.5.

    Algorithm 1's mean over features.
    """
    num_images, dim = z1.shape
    total = 2.0 * float((z1 - z2).square().sum()) / num_images / dim
    for z in (z1, z2):
        for i in range(dim):
            for j in range(dim):
                first, second = z[:, i] - z[:, i].mean(), z[:, j] - z[:, j].mean()
                covariance = float(first @ second) / (num_images - 1)
                shortfall = max(0.0, 1 - abs(covariance + 1e-4) ** 0.5)
                total += 3.0 * shortfall / dim if i == j else 0.5 * covariance**2 / dim
    return total


EQUATIONS: dict[str, tuple[Callable[..., Metrics], Callable[..., float]]] = {
    "simclr": (partial(nt_xent_loss, temperature=0.1), nt_xent),
    "barlow_twins": (partial(barlow_twins_loss, off_diagonal_weight=0.3), barlow_twins),
    "vicreg": (
        partial(vicreg_loss, invariance_weight=2.0, variance_weight=3.0, covariance_weight=0.5),
        vicreg,
    ),
}


@pytest.mark.parametrize(("num_images", "dim"), [(8, 5), (5, 8)])
@pytest.mark.parametrize("name", EQUATIONS)
def test_loss_is_the_equation_sum_by_sum(name: str, num_images: int, dim: int) -> None:
    loss, equation = EQUATIONS[name]
    views = embeddings(num_images, dim)
    assert loss(*views)["loss"].item() == pytest.approx(equation(*views))


def test_the_logged_terms_add_up_to_the_loss() -> None:
    views = embeddings(8, 5)
    barlow, vic = (EQUATIONS[name][0](*views) for name in ("barlow_twins", "vicreg"))
    torch.testing.assert_close(barlow["invariance"] + 0.3 * barlow["redundancy"], barlow["loss"])
    weighted = 2 * vic["invariance"] + 3 * vic["variance"] + 0.5 * vic["covariance"]
    torch.testing.assert_close(weighted, vic["loss"])


def test_accuracy_is_the_share_of_views_that_are_most_like_their_partner() -> None:
    views = [torch.randn(20, 3), torch.randn(20, 3)]
    unit = normalize(torch.cat(views), dim=1)
    nearest = (unit @ unit.T - 9 * torch.eye(40)).argmax(dim=1)
    result = nearest == (torch.arange(40) + 20) % 40
    accuracy = nt_xent_loss(*views, temperature=0.1)["instance_accuracy"]
    assert result.any()
    assert_equal_up_to_rounding(accuracy, 100 * result.float().mean())


STEPS: dict[str, Callable[[Tensor, Tensor, Any], Metrics]] = {
    "simclr": lambda z1, z2, c: nt_xent_loss(z1, z2, temperature=c.temperature),
    "barlow_twins": lambda z1, z2, c: barlow_twins_loss(
        z1, z2, off_diagonal_weight=c.off_diagonal_weight
    ),
    "vicreg": lambda z1, z2, c: vicreg_loss(
        z1,
        z2,
        invariance_weight=c.invariance_weight,
        variance_weight=c.variance_weight,
        covariance_weight=c.covariance_weight,
    ),
    "zero_cl": lambda z1, z2, c: zero_cl_loss(z1, z2, ridge=c.ridge),
}


@pytest.mark.parametrize("name", STEPS)
def test_step_returns_the_scaled_loss_of_projected_views(name: str) -> None:
    method = tiny_method(name)
    views = tiny_batch(method).views
    if name == "simclr":  # both views share their batch statistics
        z1, z2 = method.encoder(torch.cat(views)).chunk(2)
    else:
        z1, z2 = (method.encoder(view) for view in views)
    expected = STEPS[name](z1, z2, method.config)
    expected["loss"] = expected["loss"] * getattr(method.config, "loss_scale", 1.0)
    torch.testing.assert_close(method(views, 1.0), expected)
