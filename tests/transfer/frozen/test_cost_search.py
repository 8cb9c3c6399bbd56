"""The cost search against a plain loop, and against interruptions at every point."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pretrain.running.atomic_files import save_stage
from transfer.frozen.cost_search import (
    CostSearch,
    CostSearchResult,
    Solver,
    choose_costs,
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


class InterruptedSearchError(Exception):
    """Stands for whatever ends a process."""


def toy(num_classes: int = 4) -> tuple[Tensor, Tensor]:
    """features (90, 16) of unit length, float64; positive (90, num_classes)."""
    draw = torch.Generator().manual_seed(0)
    positive = torch.rand(90, num_classes, generator=draw) < 0.3
    content = positive.float() @ torch.randn(num_classes, 16, generator=draw)
    features = (content + 1.5 * torch.randn(90, 16, generator=draw)).relu() + 0.01
    scaled: Tensor = features / features.norm(dim=1, keepdim=True)
    return scaled.double(), positive


def batched(features: Tensor) -> Solver:
    return partial(solve_batched, eigenbasis(features), tolerance=1e-6)


def search(work: Path, settings: CostSearch = SEARCH) -> CostSearchResult:
    features, positive = toy()
    return choose_costs(batched(features), settings, features, positive, work)


@contextmanager
def ending_after(stages: int, when: str) -> Iterator[None]:
    """The process ends at its stage number `stages`, before or after that is written."""
    count = 0

    def save_or_end(path: Path, tensors: dict[str, Tensor]) -> None:
        nonlocal count
        if count == stages and when == "before":
            raise InterruptedSearchError
        save_stage(path, tensors)
        if count == stages:
            raise InterruptedSearchError
        count += 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transfer.frozen.cost_search.save_stage", save_or_end)
        yield


def test_the_table_is_that_of_a_plain_loop_over_liblinear(tmp_path: Path) -> None:
    features, positive = toy()
    table = search(tmp_path).table
    folds = stratified_folds(positive, 3, seed=0)
    for row, cost in zip(table, SEARCH.costs, strict=True):
        for index in range(4):
            precisions = []
            for fold in range(3):
                held_out = folds[:, index] == fold
                problem = Problems(
                    positive=positive[:, index][None],
                    trained_on=~held_out[None],
                    positive_weight=2.0,
                )
                plane = solve_scikit_learn(features, problem, torch.tensor([cost]).double())
                scores = plane.scores(features[held_out])[:, 0]
                precisions.append(
                    average_precision(scores, positive[held_out, index], points="area")
                )
            # LIBLINEAR stops early: planes a little apart may rank two neighbors the other way
            assert float(row[index]) == pytest.approx(sum(precisions) / 3, abs=0.3)


def test_an_interruption_at_any_stage_changes_no_bit(tmp_path: Path) -> None:
    undisturbed = search(tmp_path / "undisturbed")
    for when in ("before", "after"):
        for stages in range(4):
            work = tmp_path / f"{when}-{stages}"
            with ending_after(stages, when), pytest.raises(InterruptedSearchError):
                search(work)
            resumed = search(work)
            assert torch.equal(resumed.table, undisturbed.table), (when, stages)
            assert torch.equal(resumed.best, undisturbed.best), (when, stages)


def test_a_torn_stage_is_computed_again(tmp_path: Path) -> None:
    undisturbed = search(tmp_path)
    for path in sorted(tmp_path.glob("*.stage")):
        content = path.read_bytes()
        for size in (0, 20, 200):
            path.write_bytes(content[:size])
            assert torch.equal(search(tmp_path).table, undisturbed.table)
            assert path.read_bytes() == content


def test_other_settings_never_read_these_stages(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "seed": 1,
        "positive_weight": 1.0,
        "points": "11",
        "num_folds": 4,
        "solver": "scikit-learn",
        "costs": (0.02, 0.1, 1.0, 10.0),
    }
    search(tmp_path / "work")
    for number, (name, value) in enumerate(changes.items(), 2):
        other = replace(SEARCH, **{name: value})
        table = search(tmp_path / "work", other).table
        assert torch.equal(table, search(tmp_path / name, other).table)
        assert len(list((tmp_path / "work").glob("*.stage"))) == 4 * number, name


def test_a_longer_grid_goes_on_from_the_shorter_one(tmp_path: Path) -> None:
    longer = replace(SEARCH, costs=(*SEARCH.costs, 100.0))
    search(tmp_path)
    stages = shutil.copytree(tmp_path, tmp_path / "copy")
    assert torch.equal(search(stages, longer).table, search(tmp_path / "alone", longer).table)
    assert len(list(stages.glob("*.stage"))) == 5


def test_a_fold_that_holds_out_no_positive_does_not_count(tmp_path: Path) -> None:
    features, positive = toy(num_classes=1)
    positive[:] = False
    positive[:2] = True  # two positives in three folds
    choice = choose_costs(batched(features), SEARCH, features, positive, tmp_path)
    assert bool(choice.table.isfinite().all())


def test_folds_share_positives_and_images_evenly() -> None:
    for num_positive in [2, 3, 10, 31]:
        positive = torch.zeros(100, 2, dtype=torch.bool)
        positive[:num_positive, 0] = True
        positive[50:, 1] = True
        folds = stratified_folds(positive, 3, seed=5)
        for index in range(2):
            for side in (positive[:, index], ~positive[:, index]):
                counts = folds[side, index].bincount(minlength=3)
                assert int(counts.max() - counts.min()) <= 1
