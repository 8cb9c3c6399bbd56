"""Zero-CL against singular value decompositions: Zhang et al., ICLR 2022."""

import pytest
import torch
from torch import Tensor

from pretrain.methods.zero_cl import zero_cl_loss

EPSILON = 1e-5
"""Epsilon of torch's batch and layer norm."""


def embeddings(num_images: int = 9, dim: int = 4) -> tuple[Tensor, Tensor]:
    """z1, z2 (N, D), correlated, of any scale, float64."""
    generator = torch.Generator().manual_seed(0)
    draw = torch.randn(3, num_images, dim, generator=generator, dtype=torch.float64)
    return 2 * draw[0] + draw[1] + 1, 3 * draw[0] + draw[2] - 2


def standardized(columns: Tensor) -> Tensor:
    centered = columns - columns.mean(dim=0)
    return centered / (centered.square().mean(dim=0) + EPSILON).sqrt()


def root_by_svd(columns: Tensor, ridge: float) -> Tensor:
    """Whitening matrix (X'X/m + r I)^-1/2 of X (m, k).

    Computed from the right singular vectors of X.
    """
    num_rows, num_columns = columns.shape
    _, values, axes = torch.linalg.svd(columns, full_matrices=True)
    variances = torch.zeros(num_columns, dtype=columns.dtype)
    variances[: len(values)] = values**2 / num_rows
    root: Tensor = axes.T @ torch.diag((variances + ridge).rsqrt()) @ axes
    return root


def by_svd(first: Tensor, second: Tensor, ridge: float) -> Tensor:
    """The loss over the columns of two (m, k), with constant roots."""
    whites = []
    for columns in map(standardized, (first, second)):
        whites.append(columns @ root_by_svd(columns.detach(), ridge))
    correlation = whites[0].T @ whites[1] / len(first)
    return (correlation.diagonal() - 1).square().sum()


@pytest.mark.parametrize(("num_images", "dim"), [(9, 4), (4, 9)])
def test_both_terms_are_those_by_singular_values_with_the_whitening_held_fixed(
    num_images: int, dim: int
) -> None:
    z1, z2 = (z.requires_grad_() for z in embeddings(num_images, dim))
    features, images = by_svd(z1, z2, 0.1), by_svd(z1.T, z2.T, 0.1)
    terms = zero_cl_loss(z1, z2, ridge=0.1)
    torch.testing.assert_close(terms["feature_disagreement"], features.detach())
    torch.testing.assert_close(terms["instance_disagreement"], images.detach())
    torch.testing.assert_close(terms["loss"], features + images)
    gradient = torch.autograd.grad(terms["loss"], [z1, z2])
    torch.testing.assert_close(gradient, torch.autograd.grad(features + images, [z1, z2]))


def test_embeddings_that_are_not_finite_make_a_loss_that_is_not() -> None:
    z1, z2 = embeddings()
    z1[0, 0] = torch.nan
    assert zero_cl_loss(z1, z2, ridge=0.01)["loss"].isnan()
