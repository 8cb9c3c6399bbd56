"""Choose the SVM cost of each class by cross-validated average precision."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pretrain.running import stop
from pretrain.running.console import progress
from transfer.frozen.linear_svm import Problems, Solution
from transfer.metrics import Points, average_precision

Solver = Callable[[Problems, Tensor, Tensor | None], Solution]
"""Function of problems, costs (P,), and initial planes or None; see `linear_svm`."""


def cross_validate(
    solve: Solver,
    features: Tensor,
    positive: Tensor,
    *,
    costs: Sequence[float],
    num_folds: int,
    positive_weight: float,
    points: Points,
    seed: int,
) -> tuple[Tensor, int]:
    """Cross-validate features (n, C) with positive (n, L) bool at every cost.

    The solution at each cost is the start at the next one, so costs should increase. No state is
    saved, since this takes only minutes. The seed draws the folds.

    Returns the average precision (costs, L) in percent, the mean over the folds, and the number of
    problems for which the solver did not converge.
    """
    folds = stratified_folds(positive, num_folds, seed)
    held_out = (folds.T[:, None] == torch.arange(num_folds)[:, None]).flatten(0, 1)
    problems = Problems(
        positive=positive.T.repeat_interleave(num_folds, dim=0),
        trained_on=~held_out,
        positive_weight=positive_weight,
    )
    rows, planes, unconverged = [], None, 0
    subject = "cross-validation, 11-point AP" if points == "11" else "cross-validation"
    with progress("svm", subject, len(costs), "costs") as counter:
        for cost in costs:
            costs_of_problems = torch.full((len(held_out),), cost, dtype=torch.float64)
            solution = solve(problems, costs_of_problems, planes)
            planes = solution.weights
            unconverged += int((~solution.converged).sum())
            rows.append(held_out_precisions(solution.scores(features), problems, points))
            stop.exit_if_requested()
            counter.add(1)
    return torch.stack(rows).unflatten(1, (-1, num_folds)).nanmean(dim=2), unconverged


def held_out_precisions(scores: Tensor, problems: Problems, points: Points) -> Tensor:
    """Return the average precision (P,) on held-out images, from scores (n, P).

    It is NaN for problems without held-out positives.
    """
    precisions = [
        average_precision(column[~trained_on], positive[~trained_on], points=points)
        if bool(positive[~trained_on].any())
        else torch.nan
        for column, positive, trained_on in zip(
            scores.T, problems.positive, problems.trained_on, strict=True
        )
    ]
    return torch.tensor(precisions, dtype=torch.float64)


def stratified_folds(positive: Tensor, num_folds: int, seed: int) -> Tensor:
    """Return the fold (n, L), 0..num_folds-1, of each image for each class.

    positive (n, L) bool. Positives and negatives of a class are each distributed evenly over the
    folds, in an order drawn by the seed.
    """
    order = torch.randperm(len(positive), generator=torch.Generator().manual_seed(seed))
    shuffled = positive[order]
    rank = torch.where(shuffled, shuffled.cumsum(dim=0), (~shuffled).cumsum(dim=0)) - 1
    folds = torch.empty_like(rank)
    folds[order] = rank % num_folds
    return folds
