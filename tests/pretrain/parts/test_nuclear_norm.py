"""The nuclear norm against singular value decompositions and known numbers."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from pretrain.methods.lorac import joint_nuclear_norm, nuclear_norm
from tests.rounding import assert_equal_up_to_rounding

SHAPES = [(4, 5, 128), (3, 9, 4), (2, 6, 6), (2, 1, 7)]


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def norm_and_gradient(matrices: Tensor) -> tuple[Tensor, Tensor]:
    leaf = matrices.clone().requires_grad_()
    norm = nuclear_norm(leaf)
    norm.sum().backward()
    assert leaf.grad is not None
    return norm.detach(), leaf.grad


def polar_factor(matrices: Tensor, rank: int) -> Tensor:
    """U V' of the largest `rank` singular values, in float64."""
    left, _, right = torch.linalg.svd(matrices.double(), full_matrices=False)
    factor: Tensor = left[..., :rank] @ right[..., :rank, :]
    return factor


def test_norm_is_the_sum_of_singular_values_and_its_gradient_the_polar_factor(
    subtests: pytest.Subtests,
) -> None:
    for shape in SHAPES:
        with subtests.test(shape=shape):
            matrices = random(*shape)
            norm, gradient = norm_and_gradient(matrices)
            assert_equal_up_to_rounding(norm, torch.linalg.svdvals(matrices).sum(dim=1))
            # the polar factor feels a rounding of the rows over the least singular value
            least = torch.linalg.svdvals(matrices).amin(dim=1).min().item()
            assert_equal_up_to_rounding(
                gradient,
                polar_factor(matrices, 9),
                magnitude=max(1, matrices.norm(dim=(1, 2)).max().item() / least),
            )


@pytest.mark.parametrize("dim", [8, 128])
def test_rows_that_differ_by_rounding_count_as_equal(dim: int) -> None:
    row = normalize(random(3, 1, dim), dim=2)
    last_digit = torch.tensor([0.0, 1.0, -1.0, 0.0, 1.0])[:, None] * 2.0**-23
    _, gradient = norm_and_gradient(row * (1 + last_digit * random(3, 5, dim)))
    torch.testing.assert_close(gradient, row.expand(-1, 5, -1) / math.sqrt(5))


def test_a_matrix_that_is_not_finite_has_the_norm_nan_and_leaves_the_others() -> None:
    matrices = random(3, 5, 8)
    expected = nuclear_norm(matrices)
    matrices[0, 2, 3], matrices[1, 0, 0] = torch.nan, torch.inf
    norms = nuclear_norm(matrices)
    assert norms.isnan().tolist() == [True, True, False]
    assert torch.equal(norms[2], expected[2])


@pytest.mark.parametrize("num_rows", [3, 20])
def test_the_joint_norm_of_one_process_is_the_norm_of_its_rows(num_rows: int) -> None:
    rows = random(num_rows, 8)
    leaf = rows.clone().requires_grad_()
    norm = joint_nuclear_norm(leaf)
    norm.backward()
    expected, gradient = norm_and_gradient(rows[None])
    torch.testing.assert_close(norm.detach(), expected[0])
    assert_equal_up_to_rounding(leaf.grad, gradient[0], magnitude=1.0)
