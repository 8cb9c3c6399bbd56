"""The cost search against a plain loop."""

from functools import partial

import pytest
import torch
from torch import Tensor

from pretrain.running import stop
from transfer.frozen.cost_search import Solver, cross_validate, stratified_folds
from transfer.frozen.linear_svm import Problems, eigenbasis, solve_batched, solve_scikit_learn
from transfer.metrics import average_precision

COSTS = (0.01, 0.1, 1.0, 10.0)


def toy() -> tuple[Tensor, Tensor]:
    """features (90, 16) of unit length, float64; positive (90, 4)."""
    draw = torch.Generator().manual_seed(0)
    positive = torch.rand(90, 4, generator=draw) < 0.3
    content = positive.float() @ torch.randn(4, 16, generator=draw)
    features = (content + 1.5 * torch.randn(90, 16, generator=draw)).relu() + 0.01
    scaled: Tensor = features / features.norm(dim=1, keepdim=True)
    return scaled.double(), positive


def batched(features: Tensor) -> Solver:
    return partial(solve_batched, eigenbasis(features), tolerance=1e-6)


def search(features: Tensor, positive: Tensor) -> Tensor:
    """Return the table of average precisions."""
    table, _ = cross_validate(
        batched(features),
        features,
        positive,
        costs=COSTS,
        num_folds=3,
        positive_weight=2.0,
        points="area",
        seed=0,
    )
    return table


def test_the_table_is_that_of_a_plain_loop_over_liblinear() -> None:
    features, positive = toy()
    table = search(features, positive)
    folds = stratified_folds(positive, 3, seed=0)
    for row, cost in zip(table, COSTS, strict=True):
        for index, ours in enumerate(positive.T):
            precisions = []
            for fold in range(3):
                held_out = folds[:, index] == fold
                problem = Problems(
                    positive=ours[None], trained_on=~held_out[None], positive_weight=2.0
                )
                plane = solve_scikit_learn(features, problem, torch.tensor([cost]).double())
                scores = plane.scores(features[held_out])[:, 0]
                precisions.append(average_precision(scores, ours[held_out], points="area"))
            # LIBLINEAR stops early: planes a little apart may rank two neighbors the other way
            assert float(row[index]) == pytest.approx(sum(precisions) / 3, abs=0.3)


def test_search_stops_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop, "_received_signals", [15])
    with pytest.raises(stop.Stopped):
        search(*toy())


def test_a_fold_that_holds_out_no_positive_does_not_count() -> None:
    features, positive = toy()
    positive[2:] = False  # at most two positives in three folds
    positive[:2] = True
    assert bool(search(features, positive).isfinite().all())


def test_folds_share_positives_and_images_evenly() -> None:
    positive = torch.arange(100)[:, None] < torch.tensor([2, 3, 10, 31, 50])
    folds = stratified_folds(positive, 3, seed=5)
    for ours, fold in zip(positive.T, folds.T, strict=True):
        for side in (ours, ~ours):
            counts = fold[side].bincount(minlength=3)
            assert int(counts.max() - counts.min()) <= 1
