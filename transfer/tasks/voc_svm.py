"""VOC 2007 classification by linear SVMs on frozen features: Table 3 of CO2, arXiv:2010.02217.

Each class has its own one-vs-rest SVM, at a cost chosen by cross-validated average precision
(Goyal et al., ICCV 2019, arXiv:1905.01235).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from pretrain.running.console import print_line
from transfer.datasets.catalog import expected_sizes
from transfer.datasets.folders import Folders
from transfer.encoders.encoder import Encoder
from transfer.frozen.feature_cache import Features, Predictions, TrainAndTest, open_images
from transfer.frozen.transforms import EvalTransform
from transfer.galleries.mistakes import misplaced
from transfer.metrics import average_precision
from transfer.outcomes import resampled, resampled_precision, resamples
from transfer.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor

    from transfer.datasets.images import Images
    from transfer.frozen.cost_search import CostSearch, CostSearchResult, Solver
    from transfer.galleries.tile import Tile
    from transfer.metrics import Points

PRESENT, DIFFICULT, ABSENT = 1, 0, -1
VISSL_COSTS = (0.01, 0.1, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 50.0, 100.0, 1000.0)
POWER_COSTS = tuple(2.0**-exponent for exponent in range(4, 20))
SMOKE_COSTS = (0.01, 0.1, 1.0, 10.0, 100.0)
MOST_NAMED = 5
"""Classes that an error names."""


@dataclass(frozen=True, eq=False)
class SVMData(TrainAndTest):
    """Features of unit length, and labels (n, L) of the classes with enough positives."""

    left_out: tuple[str, ...]
    """Classes with too few positives."""


@dataclass(frozen=True, kw_only=True)
class VOCSVM(Task):
    """Protocol of 20 class-weighted SVMs on unit-length features of squashed images; mAP on test.

    CO2 cites Goyal et al. for the protocol and says that costs are chosen on a held-out part of the
    training images. Goyal et al. and their code have 3-fold cross-validation, which
    is done here. The settings are those of its public implementations,
    and the costs are the union of their grids. The folds are not published: they are stratified and
    drawn by the seed. Objects marked difficult are negatives in trainval, also when held out, and
    ignored on test.
    """

    heading: ClassVar[str] = "VOC 2007 SVM"
    primary_metric: ClassVar[str] = "mAP"

    dataset: str = field(default="voc07", init=False, metadata={"hashed": False, "stored": False})
    protocol: str = "co2-2021/1"
    points: Points = "area"
    """Kind of average precision, in search and test: by area, or the 11 points of VOC 2007."""
    solver: Literal["batched", "scikit-learn"] = "batched"
    """Solver: scikit-learn's LinearSVC is the reference; batched finds the same planes sooner."""
    costs: tuple[float, ...] = tuple(sorted((*VISSL_COSTS, *POWER_COSTS)))
    """Costs C, rising; among equal average precisions the smallest is chosen."""
    num_folds: int = 3
    positive_weight: float = 2.0
    """Weight of a positive image's loss; that of a negative one is 1."""
    gradient_tolerance: float = 1e-4
    """Tolerance of the batched solver, relative to the gradient at zero and a class's share of
    images."""
    norm_offset: float = 1e-5
    """Number added to a feature's length before the division by it."""
    crop_px: int = 224
    """Side to which the whole image is squashed, via 256/224 of it; nothing is cut off."""
    min_classes: int = 20
    """Least number of classes with 2 positives in trainval and 1 in test; fewer are an error."""

    @property
    def engine(self) -> str:
        """Return the solver of the SVMs."""
        return self.solver

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol with fewer costs, for smoke also with smaller images.

        Both schedules score the classes that the data has.
        """
        if schedule == "smoke":
            return replace(self, costs=SMOKE_COSTS, crop_px=64, min_classes=1)
        return self if schedule == "paper" else replace(self, costs=VISSL_COSTS, min_classes=1)

    def too_few_images(self, data: Path) -> str:
        """Return that an excerpt is known to have too few classes; empty if it is not."""
        classes = expected_sizes(self.dataset, data).classes
        if classes >= self.min_classes:
            return ""
        return (
            f"{self.min_classes} classes are scored, but {self.dataset} has {classes} with images "
            "in trainval and test; use the complete data set, or --schedule short, which scores "
            "those"
        )

    def for_backbone(self, backbone: Encoder) -> Self:
        """Return the protocol with images no larger than those the backbone was trained on.

        They have that very size for another network than a ResNet, such as a grid of patches.
        """
        own = backbone.input.size_px
        fixed = not backbone.is_resnet
        return replace(self, crop_px=own if fixed else min(self.crop_px, own))

    def extracted(self) -> list[tuple[str, EvalTransform]]:
        """Return the training and the test images, squashed."""
        transform = EvalTransform(
            resize_px=round(self.crop_px * 256 / 224), crop_px=self.crop_px, squash=True
        )
        return [("trainval", transform), ("test", transform)]

    def prepare(self, backbone: Encoder, folders: Folders) -> SVMData:
        """Return the features of trainval and test, extracted or from the cache."""
        train, test = self.features(backbone, folders)
        names = open_images("voc07", "trainval", folders).class_names
        return self.measurable(train, test, names)

    def too_few_labels(self, images: Mapping[str, Images]) -> str:
        """Return which classes have too few positives, if too many have; else an empty text.

        With two positives in trainval, a fold that holds one out can train on the other.
        """
        train, test = images["trainval"], images["test"]
        enough = scored(train.labels, test.labels)
        least = max(1, self.min_classes)
        if sum(enough) >= least:
            return ""
        counts = [(part.labels == PRESENT).sum(dim=0).tolist() for part in (train, test)]
        rows = zip(train.class_names, *counts, enough, strict=True)
        short = [
            f"{name} ({own} in trainval, {other} in test)"
            for name, own, other, keep in rows
            if not keep
        ]
        named = ", ".join(short[:MOST_NAMED])
        if len(short) > MOST_NAMED:
            named += f" and {len(short) - MOST_NAMED} more"
        advice = "Use the complete data set"
        if self.min_classes > 1 and any(enough):
            advice += ", or --schedule short, which scores the other classes"
        return (
            f"{self.dataset}: {sum(enough)} classes have 2 positive and 2 negative images in "
            f"trainval and a positive one in test, expected {least}. Too few positives: {named}. "
            f"{advice}"
        )

    def measurable(self, train: Features, test: Features, names: tuple[str, ...]) -> SVMData:
        """Return features of unit length, restricted to the classes with enough positives."""
        enough = scored(train.labels, test.labels)
        kept = [index for index, keep in enumerate(enough) if keep]
        return SVMData(
            Features(unit_length(train.features, self.norm_offset), train.labels[:, kept]),
            Features(unit_length(test.features, self.norm_offset), test.labels[:, kept]),
            tuple(names[index] for index in kept),
            tuple(name for name, keep in zip(names, enough, strict=True) if not keep),
        )

    def run(self, data: SVMData, folders: Folders, seed: int) -> Predictions:
        """Choose a cost per class on trainval, train on all of it, return scores (n, L) of test."""
        import torch

        from transfer.frozen.cost_search import choose_costs
        from transfer.frozen.linear_svm import Problems

        features, positive = data.train.features, data.train.labels == PRESENT
        solve = self.bound_solver(features)
        choice = choose_costs(solve, self.search(seed), features, positive)
        chosen = torch.tensor(self.costs, dtype=torch.float64)[choice.best]
        everywhere = Problems(
            positive=positive.T,
            trained_on=torch.ones_like(positive.T),
            positive_weight=self.positive_weight,
        )
        planes = solve(everywhere, chosen, None)
        details = {
            "classes": self.class_choices(choice, data.class_names),
            "classes_left_out": list(data.left_out),
            "mean_cross_validated_AP": {
                f"{cost:g}": round(float(row.mean()), 3)
                for cost, row in zip(self.costs, choice.table, strict=True)
            },
            "unconverged_in_search": choice.unconverged,
            "unconverged_at_last": int((~planes.converged).sum()),
        }
        return Predictions(planes.scores(data.test.features), data.test.labels, details)

    def bound_solver(self, features: Tensor) -> Solver:
        """Return the solver bound to features (n, C)."""
        from transfer.frozen.linear_svm import eigenbasis, solve_batched, solve_scikit_learn
        from transfer.frozen.network import device

        if self.solver == "scikit-learn":
            return partial(solve_scikit_learn, features)
        basis = eigenbasis(features.to(device()))
        return partial(solve_batched, basis, tolerance=self.gradient_tolerance)

    def search(self, seed: int) -> CostSearch:
        """Return the settings of the cost search."""
        from transfer.frozen.cost_search import CostSearch

        return CostSearch(
            costs=self.costs,
            num_folds=self.num_folds,
            positive_weight=self.positive_weight,
            points=self.points,
            seed=seed,
        )

    def class_choices(
        self, choice: CostSearchResult, names: tuple[str, ...]
    ) -> dict[str, dict[str, object]]:
        """Return cost and cross-validated average precision by class; print their range."""
        choices: dict[str, dict[str, object]] = {}
        for name, index, column in zip(names, choice.best.tolist(), choice.table.T, strict=True):
            cost, precision = self.costs[index], float(column[index])
            choices[name] = {
                "cost": cost,
                "at_grid_edge": index in (0, len(self.costs) - 1),
                "cross_validated_AP": precision,
            }
        costs = [self.costs[index] for index in choice.best.tolist()]
        range_ = f"C {min(costs):.3g} to {max(costs):.3g}"
        mean = choice.table.max(dim=0).values.nanmean()
        print_line("svm", f"{len(names)} classes  {range_}  mean cross-validated AP {mean:.2f}")
        return choices

    def metrics(self, predictions: Predictions) -> dict[str, float]:
        """Return mAP in percent, the mean over the classes."""
        precisions = self.precisions(predictions)
        return {"mAP": sum(precisions) / len(precisions)}

    def precisions(self, predictions: Predictions) -> list[float]:
        """Return the average precision of each class in percent, its difficult images ignored."""
        return [
            average_precision(
                scores[labels != DIFFICULT],
                labels[labels != DIFFICULT] == PRESENT,
                points=self.points,
            )
            for scores, labels in zip(predictions.scores.T, predictions.labels.T, strict=True)
        ]

    def details(self, predictions: Predictions) -> dict[str, object]:
        """Return per class cost, whether it is at the grid's edge, and both average precisions."""
        tested = self.precisions(predictions)
        classes = {
            name: {**row, "AP": precision}
            for (name, row), precision in zip(
                predictions.details["classes"].items(), tested, strict=True
            )
        }
        edge = [name for name, row in classes.items() if row["at_grid_edge"]]
        return {
            **predictions.details,
            "classes": classes,
            "classes_at_grid_edge": edge,
            **self.resampled(predictions),
        }

    def resampled(self, predictions: Predictions) -> dict[str, Any]:
        """Return mAP on resampled test sets."""
        recalls = np.arange(11) / 10 if self.points == "11" else None
        scores, labels = predictions.scores.numpy(), predictions.labels.numpy()
        counts = resamples(len(labels))
        by_class = []
        for own, truth in zip(scores.T, labels.T, strict=True):
            order = np.argsort(-own, kind="stable")
            there = truth == PRESENT
            hits, misses = there[order], (truth == ABSENT)[order]
            by_class.append(
                resampled_precision(hits, misses, order, there.astype(float), counts, recalls)
            )
        return resampled({"mAP": np.nanmean(by_class, axis=0)}, len(labels))

    def gallery(self, predictions: Predictions, folders: Folders) -> list[Tile]:
        """Return test images that the rankings for classes have in the most wrong places.

        Difficult images of a class are not ranked, as in the metric.
        """
        images = open_images("voc07", "test", folders)
        labels, classes = predictions.labels, list(predictions.details["classes"])
        present, absent = labels == PRESENT, labels == ABSENT
        return misplaced(images, predictions.scores, present, absent, classes)


def scored(train: Tensor, test: Tensor) -> list[bool]:
    """Return which of L classes can be scored, by the labels of trainval (n, L) and test (m, L)."""
    present = train == PRESENT
    enough: list[bool] = (
        (present.sum(dim=0) >= 2) & ((~present).sum(dim=0) >= 2) & (test == PRESENT).any(dim=0)
    ).tolist()
    return enough


def unit_length(features: Tensor, offset: float) -> Tensor:
    """Return features (n, C) divided by their length + offset, as in the public implementations.

    ValueError if a feature is not finite.
    """
    finite = features.isfinite().all(dim=1)
    if not bool(finite.all()):
        raise ValueError(
            f"{int((~finite).sum())} of {len(features)} features are not finite; "
            "check the backbone: python -m transfer inspect FILE"
        )
    scaled: Tensor = features / (features.norm(dim=1, keepdim=True) + offset)
    return scaled


TASKS = {
    "voc07_svm": VOCSVM(),
    "voc07_svm@11point": VOCSVM(protocol="co2-2021-11point/1", points="11"),
}
