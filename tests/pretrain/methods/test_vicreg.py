"""VICReg against equations 1 to 6 by other routes: Bardes et al., arXiv:2105.04906."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pretrain.methods.vicreg import VICReg, vicreg_loss
from pretrain.recipes.vicreg import VICRegConfig

WEIGHTS = {"invariance_weight": 2.0, "variance_weight": 3.0, "covariance_weight": 0.5}


def embeddings(num_images: int = 8, dim: int = 5) -> tuple[Tensor, Tensor]:
    """z1, z2 (N, D), correlated, with deviations on both sides of one, float64."""
    generator = torch.Generator().manual_seed(0)
    draw = torch.randn(3, num_images, dim, generator=generator, dtype=torch.float64)
    scale = torch.linspace(0.2, 2, dim, dtype=torch.float64)
    return scale * (draw[0] + 0.5 * draw[1]) + 1, scale * (draw[0] + 0.5 * draw[2]) - 1


def equations_1_to_4(z: Tensor) -> tuple[float, float]:
    """v and c, sums one by one."""
    num_images, dim = z.shape
    covariance = [
        [float((z[:, i] - z[:, i].mean()) @ (z[:, j] - z[:, j].mean())) / (num_images - 1)
         for j in range(dim)]
        for i in range(dim)
    ]  # fmt: skip
    variance = sum(max(0.0, 1 - (covariance[j][j] + 1e-4) ** 0.5) for j in range(dim)) / dim
    beside = sum(covariance[i][j] ** 2 for i in range(dim) for j in range(dim) if i != j)
    return variance, beside / dim


@pytest.mark.parametrize(("num_images", "dim"), [(8, 5), (5, 8)])
def test_loss_is_equation_6_with_the_mean_over_features_of_algorithm_1(
    num_images: int, dim: int
) -> None:
    z1, z2 = embeddings(num_images, dim)
    (v1, c1), (v2, c2) = equations_1_to_4(z1), equations_1_to_4(z2)
    equation_5 = sum(float((a - b) @ (a - b)) for a, b in zip(z1, z2, strict=True)) / num_images
    expected = 2.0 * equation_5 / dim + 3.0 * (v1 + v2) + 0.5 * (c1 + c2)
    assert vicreg_loss(z1, z2, **WEIGHTS)["loss"].item() == pytest.approx(expected)


def tiny_vicreg(**changes: Any) -> VICReg:
    """VICReg on a layer with batch norm, of 3x4x4 images."""
    torch.manual_seed(0)
    backbone = nn.Sequential(
        nn.Flatten(), nn.Linear(48, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU()
    )
    settings = {"hidden_dim": 16, "embedding_dim": 6} | changes
    return VICReg(backbone, 12, VICRegConfig(**settings))


def test_method_is_the_loss_of_the_projected_views_and_logs_the_terms_without_weights() -> None:
    method = tiny_vicreg(**WEIGHTS)
    torch.manual_seed(1)
    views = [torch.randn(8, 3, 4, 4) for _ in range(2)]
    z1, z2 = (method.encoder(view) for view in views)
    expected = vicreg_loss(z1, z2, **WEIGHTS)["loss"]
    metrics = method(views, 1.0)
    torch.testing.assert_close(metrics["loss"], expected)
    names = ("invariance", "variance", "covariance")
    weighted = sum(WEIGHTS[f"{name}_weight"] * metrics[name] for name in names)
    torch.testing.assert_close(weighted, expected.detach())
