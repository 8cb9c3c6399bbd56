"""Choose the SVM cost of each class by cross-validated average precision."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pretrain.running import stop
from pretrain.running.console import progress
from transfer.frozen.linear_svm import Problems, Solution
from transfer.metrics import Points, average_precision

Solver = Callable[[Problems, Tensor, Tensor | None], Solution]
"""Function of problems, costs (P,), and initial planes or None; see `linear_svm`."""


@dataclass(frozen=True, kw_only=True)
class CostSearch:
    """Settings of the search."""

    costs: tuple[float, ...]
    """Values of C in increasing order."""
    num_folds: int
    positive_weight: float
    points: Points
    seed: int
    """Seed of the folds."""

    def __post_init__(self) -> None:
        if not self.costs or sorted(set(self.costs)) != list(self.costs) or self.costs[0] <= 0:
            raise ValueError(
                f"costs are {self.costs}; expected positive costs in increasing order, "
                "since the solution at one cost is the start for the next"
            )


@dataclass(frozen=True, eq=False)
class CostSearchResult:
    """Results of the search."""

    table: Tensor
    """(costs, L) average precision in percent, mean over the folds."""
    unconverged: int
    """Number of problems for which the solver did not converge."""

    @property
    def best(self) -> Tensor:
        """Index (L,) of the best cost; ties go to the smallest cost."""
        return self.table.argmax(dim=0)  # argmax returns the first maximum


def choose_costs(
    solve: Solver, search: CostSearch, features: Tensor, positive: Tensor
) -> CostSearchResult:
    """Cross-validate features (n, C) with positive (n, L) bool at every cost.

    Each cost starts from the planes of the previous one. It takes minutes, so no state is saved.
    """
    folds = stratified_folds(positive, search.num_folds, search.seed)
    held_out = (folds.T[:, None] == torch.arange(search.num_folds)[:, None]).flatten(0, 1)
    problems = Problems(
        positive=positive.T.repeat_interleave(search.num_folds, dim=0),
        trained_on=~held_out,
        positive_weight=search.positive_weight,
    )
    stages: list[dict[str, Tensor]] = []
    subject = "cross-validation, 11-point AP" if search.points == "11" else "cross-validation"
    with progress("svm", subject, len(search.costs), "costs") as counter:
        for cost in search.costs:
            start = stages[-1]["weights"] if stages else None
            costs = torch.full((len(held_out),), cost, dtype=torch.float64)
            solution = solve(problems, costs, start)
            stages.append(with_precisions(solution, problems, features, search.points))
            stop.exit_if_requested()
            counter.add(1)
    by_fold = torch.stack([stage["average_precision"] for stage in stages])
    return CostSearchResult(
        table=by_fold.unflatten(1, (-1, search.num_folds)).nanmean(dim=2),
        unconverged=sum(int((~stage["converged"]).sum()) for stage in stages),
    )


def with_precisions(
    solution: Solution, problems: Problems, features: Tensor, points: Points
) -> dict[str, Tensor]:
    """Return planes and held-out average precision (P,); NaN without positives."""
    precisions = [
        average_precision(scores[~trained_on], positive[~trained_on], points=points)
        if bool(positive[~trained_on].any())
        else torch.nan
        for scores, positive, trained_on in zip(
            solution.scores(features).T, problems.positive, problems.trained_on, strict=True
        )
    ]
    return {
        "weights": solution.weights.contiguous(),
        "converged": solution.converged,
        "average_precision": torch.tensor(precisions, dtype=torch.float64),
    }


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
