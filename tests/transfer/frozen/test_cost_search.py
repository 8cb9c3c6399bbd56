"""The cost search against a plain loop, and against a stop after every cost."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pretrain.running import stop
from transfer.frozen.cost_search import (
    CostSearch,
    CostSearchResult,
    Solver,
    choose_costs,
    search_key,
    stratified_folds,
)
from transfer.frozen.linear_svm import Problems, eigenbasis, solve_batched, solve_scikit_learn
from transfer.metrics import average_precision

SEARCH = CostSearch(
    solver="batched",
    costs=(0.01, 0.1, 1.0, 10.0),
    num_folds=3,
    positive_weight=2.0,
    points="area",
    seed=0,
)


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


def search(work: Path, settings: CostSearch = SEARCH) -> CostSearchResult:
    features, positive = toy()
    return choose_costs(batched(features), settings, features, positive, work)


def test_the_table_is_that_of_a_plain_loop_over_liblinear(tmp_path: Path) -> None:
    features, positive = toy()
    table = search(tmp_path).table
    folds = stratified_folds(positive, 3, seed=0)
    for row, cost in zip(table, SEARCH.costs, strict=True):
        for index, own in enumerate(positive.T):
            precisions = []
            for fold in range(3):
                held_out = folds[:, index] == fold
                problem = Problems(
                    positive=own[None], trained_on=~held_out[None], positive_weight=2.0
                )
                plane = solve_scikit_learn(features, problem, torch.tensor([cost]).double())
                scores = plane.scores(features[held_out])[:, 0]
                precisions.append(average_precision(scores, own[held_out], points="area"))
            # LIBLINEAR stops early: planes a little apart may rank two neighbors the other way
            assert float(row[index]) == pytest.approx(sum(precisions) / 3, abs=0.3)


def test_a_search_that_is_stopped_after_each_cost_changes_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = search(tmp_path / "undisturbed")
    monkeypatch.setattr(stop, "_asked", [15])
    for _ in SEARCH.costs:
        with pytest.raises(stop.Stopped):
            search(tmp_path / "stopped")
    resumed = search(tmp_path / "stopped")
    assert torch.equal(resumed.table, undisturbed.table)
    assert torch.equal(resumed.best, undisturbed.best)


def test_other_settings_or_costs_below_never_read_these_stages(tmp_path: Path) -> None:
    others: list[dict[str, Any]] = [{}, {"seed": 1}, {"positive_weight": 1.0}, {"points": "11"}]
    others += [{"num_folds": 4}, {"solver": "scikit-learn"}]
    features, positive = toy()
    keys = {search_key(replace(SEARCH, **other), features, positive) for other in others}
    keys |= {search_key(SEARCH, features + 1, positive), search_key(SEARCH, features, ~positive)}
    assert len(keys) == len(others) + 2
    search(tmp_path)
    search(tmp_path, replace(SEARCH, costs=(0.02, *SEARCH.costs[1:])))
    assert len(list(tmp_path.glob("*.stage"))) == 8


def test_a_longer_grid_goes_on_from_the_shorter_one(tmp_path: Path) -> None:
    longer = replace(SEARCH, costs=(*SEARCH.costs, 100.0))
    search(tmp_path / "begun")
    found = search(tmp_path / "begun", longer)
    assert torch.equal(found.table, search(tmp_path / "alone", longer).table)
    assert len(list((tmp_path / "begun").glob("*.stage"))) == 5


def test_a_fold_that_holds_out_no_positive_does_not_count(tmp_path: Path) -> None:
    features, positive = toy()
    positive[2:] = False  # at most two positives in three folds
    positive[:2] = True
    choice = choose_costs(batched(features), SEARCH, features, positive, tmp_path)
    assert bool(choice.table.isfinite().all())


def test_folds_share_positives_and_images_evenly() -> None:
    positive = torch.arange(100)[:, None] < torch.tensor([2, 3, 10, 31, 50])
    folds = stratified_folds(positive, 3, seed=5)
    for own, fold in zip(positive.T, folds.T, strict=True):
        for side in (own, ~own):
            counts = fold[side].bincount(minlength=3)
            assert int(counts.max() - counts.min()) <= 1
