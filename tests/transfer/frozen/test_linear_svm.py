"""The batched solver against LIBLINEAR, dense linear algebra and problems solved alone."""

import pytest
import torch
from torch import Tensor

from transfer.frozen import linear_svm
from transfer.frozen.linear_svm import (
    Problems,
    Solution,
    eigenbasis,
    newton_direction,
    solve_batched,
    solve_scikit_learn,
)

TIGHT = 1e-12
"""Bound on the distance of two solutions.

The Hessian is at least 1, so a plane is no further from the solution than its gradient is long. At
w = 0 that is below 1e5 here, so two solutions agree to the 1e-7 that float64 is held to.
"""


def images(n: int = 150, dim: int = 12, dtype: torch.dtype = torch.float64) -> Tensor:
    features = torch.randn(n, dim, generator=torch.Generator().manual_seed(0)).relu() + 0.05
    scaled: Tensor = features / features.norm(dim=1, keepdim=True)
    return scaled.to(dtype)


def overlapping(features: Tensor) -> Problems:
    """Six classes that no plane separates, from rare to common.

    Each holds other images out.
    """
    draw = torch.Generator().manual_seed(1)
    n, dim = features.shape
    planes = torch.randn(6, dim, generator=draw)
    heights = planes @ features.float().T + 0.2 * torch.randn(6, n, generator=draw)
    rates = torch.linspace(0.1, 0.5, 6)
    positive = heights > heights.quantile(1 - rates, dim=1).diagonal()[:, None]
    trained_on = torch.rand(6, n, generator=draw) < 0.7
    return Problems(positive=positive, trained_on=trained_on, positive_weight=2.0)


def solved(features: Tensor, problems: Problems, cost: float, tolerance: float = TIGHT) -> Solution:
    costs = torch.full((len(problems.positive),), cost, dtype=torch.float64)
    return solve_batched(eigenbasis(features), problems, costs, tolerance=tolerance)


@pytest.mark.parametrize("cost", [2.0**-10, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("dim", [12, 300])
def test_planes_are_those_of_liblinear(dim: int, cost: float) -> None:
    features = images(dim=dim)
    problems, costs = overlapping(features), torch.full((6,), cost).double()
    ours = solved(features, problems, cost, tolerance=1e-6).weights
    theirs = solve_scikit_learn(features, problems, costs).weights
    # LIBLINEAR itself stops at 1e-4
    assert bool(((ours - theirs).norm(dim=1) < 1e-3 * theirs.norm(dim=1)).all())


def test_float32_images_are_enough_for_the_default_tolerance() -> None:
    features = images()
    problems = overlapping(features)
    exact = solved(features, problems, 5.0).weights
    solution = solved(features.float(), problems, 5.0, tolerance=1e-5)
    assert bool(solution.converged.all())
    # a gradient shortened to 1e-5, in products of 150 terms in float32
    assert bool(((solution.weights - exact).norm(dim=1) < 1e-3 * exact.norm(dim=1)).all())


def test_problems_in_a_batch_do_not_disturb_each_other() -> None:
    features = images()
    problems = overlapping(features)
    costs = torch.tensor([0.01, 0.1, 1.0, 5.0, 20.0, 100.0], dtype=torch.float64)
    together = solve_batched(eigenbasis(features), problems, costs, tolerance=TIGHT).weights
    for index, cost in enumerate(costs.tolist()):
        single = Problems(
            positive=problems.positive[index : index + 1],
            trained_on=problems.trained_on[index : index + 1],
            positive_weight=2.0,
        )
        torch.testing.assert_close(solved(features, single, cost).weights[0], together[index])


def test_the_direction_is_newtons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_svm, "CG_REDUCTION", 1e-12)
    basis = eigenbasis(images())
    draw = torch.Generator().manual_seed(2)
    curvature = 10 * torch.rand(3, 150, generator=draw, dtype=torch.float64)
    gradient = torch.randn(3, 13, generator=draw, dtype=torch.float64)
    direction, change = newton_direction(basis, curvature, gradient)
    for problem in range(3):
        hessian = torch.eye(13) + basis.images.T @ curvature[problem].diag() @ basis.images
        expected = -torch.linalg.solve(hessian.double(), gradient[problem])
        torch.testing.assert_close(direction[problem], expected)
    torch.testing.assert_close(change, direction @ basis.images.T)


def test_a_solver_that_runs_out_of_steps_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    features = images()
    problems = overlapping(features)
    monkeypatch.setattr(linear_svm, "NEWTON_STEPS", 1)
    monkeypatch.setattr(linear_svm, "LIBLINEAR_STEPS", 1)
    assert not solved(features, problems, 100.0).converged.any()
    assert not solve_scikit_learn(features, problems, torch.full((6,), 100.0)).converged.any()


@pytest.mark.gpu
def test_a_gpu_finds_the_same_planes() -> None:
    features = images()
    problems = overlapping(features)
    costs = torch.full((6,), 5.0, dtype=torch.float64)
    there = solve_batched(eigenbasis(features.cuda()), problems, costs, tolerance=TIGHT)
    torch.testing.assert_close(there.weights, solved(features, problems, 5.0).weights)
