"""VOC 2007 classification by linear SVMs on frozen features.

CO2 (Wei et al., ICLR 2021, arXiv:2010.02217), Table 3. Each class has its own one-vs-rest SVM, at a
cost chosen by cross-validated average precision (Goyal et al., ICCV 2019, arXiv:1905.01235).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from pretrain.running.console import print_line
from transfer.datasets.folders import Folders
from transfer.encoders.encoder import Encoder
from transfer.frozen.feature_cache import Features, Predictions, TrainAndTest, open_images
from transfer.frozen.transforms import EvalTransform
from transfer.galleries.mistakes import worst_ranked
from transfer.metrics import average_precision
from transfer.outcomes import resampled, resampled_precision, resamples
from transfer.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor

    from transfer.datasets.images import Images
    from transfer.galleries.tile import Tile
    from transfer.metrics import Points

PRESENT, DIFFICULT, ABSENT = 1, 0, -1
VISSL_COSTS = (0.01, 0.1, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 50.0, 100.0, 1000.0)
POWER_COSTS = tuple(2.0**-exponent for exponent in range(4, 20))
SMOKE_COSTS = (0.01, 0.1, 1.0, 10.0, 100.0)


@dataclass(frozen=True, eq=False)
class SVMData(TrainAndTest):
    """Unit-length features, and labels (n, L) of the classes with enough positives."""

    left_out: tuple[str, ...]
    """Classes with too few positives."""


@dataclass(frozen=True, kw_only=True)
class VOCSVM(Task):
    """One class-weighted SVM per class on unit-length features; mAP on test.

    Images are squashed to a square. CO2 cites Goyal et al. for the protocol and says that costs are
    chosen on a held-out part of the training images. Goyal et al. and their code use 3-fold
    cross-validation, and so do we. The settings come from its public implementations, and the costs
    are the union of their grids. The folds are not published: ours are stratified and drawn by the
    seed. Difficult objects are negatives in trainval, also when held out, and ignored on test.
    """

    heading: ClassVar[str] = "VOC 2007 SVM"
    primary_metric: ClassVar[str] = "mAP"

    dataset: str = field(default="voc07", init=False, metadata={"hashed": False, "stored": False})
    protocol: str = "co2-2021/1"
    points: Points = "area"
    """Average precision: area, or the 11 points of VOC 2007."""
    solver: Literal["batched", "scikit-learn"] = "batched"
    """scikit-learn: its LinearSVC, the reference; batched: equal solutions, faster."""
    costs: tuple[float, ...] = tuple(sorted((*VISSL_COSTS, *POWER_COSTS)))
    """Costs C in increasing order; ties go to the smallest cost."""
    num_folds: int = 3
    positive_weight: float = 2.0
    """Weight of a positive image's loss; negative images have weight 1."""
    gradient_tolerance: float = 1e-4
    """Tolerance of the batched solver on the norm of the gradient.

    It is relative to the gradient at zero, times the fraction of images in the rarer class."""
    norm_offset: float = 1e-5
    """Offset added to a feature's norm before the division."""
    crop_px: int = 224
    """Size of the squashed input image.

    The whole image is first resized to 256/224 of it; nothing is cropped."""
    min_classes: int = 20
    """Minimum number of classes that can be scored; fewer are an error.

    A class needs 2 positives in trainval and 1 in test."""

    @property
    def engine(self) -> str:
        """Return the solver of the SVMs."""
        return self.solver

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol with fewer costs; smoke: also with smaller images.

        Both schedules score the classes that have enough images.
        """
        if schedule == "smoke":
            return replace(self, costs=SMOKE_COSTS, crop_px=64, min_classes=1)
        return self if schedule == "paper" else replace(self, costs=VISSL_COSTS, min_classes=1)

    def for_backbone(self, backbone: Encoder) -> Self:
        """Return the protocol with images of at most the backbone's training size.

        Other networks than ResNets, such as ViTs, get exactly their training size.
        """
        size_px = backbone.input.size_px
        fixed = not backbone.is_resnet
        return replace(self, crop_px=size_px if fixed else min(self.crop_px, size_px))

    def extracted(self) -> list[tuple[str, EvalTransform]]:
        """Return the training and test splits, squashed to a square."""
        transform = EvalTransform(
            resize_px=round(self.crop_px * 256 / 224), crop_px=self.crop_px, squash=True
        )
        return [("trainval", transform), ("test", transform)]

    def prepare(self, backbone: Encoder, folders: Folders) -> SVMData:
        """Return the features of trainval and test, computed or from the cache."""
        train, test = self.features(backbone, folders)
        names = open_images("voc07", "trainval", folders).class_names
        return self.select_classes(train, test, names)

    def too_few(self, num_images: int, num_classes: int) -> str:
        """Return why too few classes can be scored; empty if enough."""
        minimum = max(1, self.min_classes)
        if num_classes >= minimum:
            return ""
        return (
            f"expected {minimum} classes to score, but {self.dataset} has {num_classes} with two "
            "positive and two negative images in trainval and a positive one in test. Use the "
            "complete dataset, or --schedule short, which scores any number of classes"
        )

    def too_few_labels(self, images: Mapping[str, Images]) -> str:
        """Return the reason of `too_few`, with the classes that lack images."""
        train, test = images["trainval"], images["test"]
        scorable = can_be_scored(train.labels, test.labels)
        reason = self.too_few(len(train), int(scorable.sum()))
        lacking = ", ".join(compress(train.class_names, ~scorable))
        return f"{reason}. Classes with too few: {lacking}" if reason else ""

    def select_classes(self, train: Features, test: Features, names: tuple[str, ...]) -> SVMData:
        """Return unit-length features, with labels of classes with enough positives."""
        has_enough = can_be_scored(train.labels, test.labels)
        return SVMData(
            Features(unit_length(train.features, self.norm_offset), train.labels[:, has_enough]),
            Features(unit_length(test.features, self.norm_offset), test.labels[:, has_enough]),
            tuple(compress(names, has_enough)),
            tuple(compress(names, ~has_enough)),
        )

    def run(self, data: SVMData, folders: Folders, seed: int) -> Predictions:
        """Choose costs by cross-validation, train on trainval, return test scores (n, L)."""
        import torch

        from transfer.frozen import linear_svm
        from transfer.frozen.cost_search import Solver, cross_validate
        from transfer.frozen.network import device

        features, positive = data.train.features, data.train.labels == PRESENT
        solve: Solver = partial(linear_svm.solve_scikit_learn, features)
        if self.solver == "batched":
            basis = linear_svm.eigenbasis(features.to(device()))
            solve = partial(linear_svm.solve_batched, basis, tolerance=self.gradient_tolerance)
        table, unconverged = cross_validate(
            solve,
            features,
            positive,
            costs=self.costs,
            num_folds=self.num_folds,
            positive_weight=self.positive_weight,
            points=self.points,
            seed=seed,
        )
        best = table.argmax(dim=0)  # the first maximum: ties go to the smallest cost
        costs = torch.tensor(self.costs, dtype=torch.float64)[best]
        problems = linear_svm.Problems(
            positive=positive.T,
            trained_on=torch.ones_like(positive.T),
            positive_weight=self.positive_weight,
        )
        planes = solve(problems, costs, None)
        mean = table.max(dim=0).values.nanmean()
        print_line(
            "svm",
            f"{len(best)} classes  C {costs.min():.3g} to {costs.max():.3g}  "
            f"mean cross-validated AP {mean:.2f}",
        )
        details = {
            "classes": {
                name: {
                    "cost": self.costs[index],
                    "at_grid_edge": index in (0, len(self.costs) - 1),
                    "cross_validated_AP": float(precisions[index]),
                }
                for name, index, precisions in zip(
                    data.class_names, best.tolist(), table.T, strict=True
                )
            },
            "classes_left_out": list(data.left_out),
            "mean_cross_validated_AP": {
                f"{cost:g}": round(float(row.mean()), 3)
                for cost, row in zip(self.costs, table, strict=True)
            },
            "unconverged_in_search": unconverged,
            "unconverged_at_last": int((~planes.converged).sum()),
        }
        return Predictions(planes.scores(data.test.features), data.test.labels, details)

    def metrics(self, predictions: Predictions) -> dict[str, float]:
        """Return mAP in percent, the mean over the classes."""
        precisions = self.precisions(predictions)
        return {"mAP": sum(precisions) / len(precisions)}

    def precisions(self, predictions: Predictions) -> list[float]:
        """Return the average precision of each class in percent.

        Images that are difficult for a class are ignored.
        """
        return [
            average_precision(
                scores[labels != DIFFICULT],
                labels[labels != DIFFICULT] == PRESENT,
                points=self.points,
            )
            for scores, labels in zip(predictions.scores.T, predictions.labels.T, strict=True)
        ]

    def details(self, predictions: Predictions) -> dict[str, object]:
        """Return results by class, and mAP on resampled test sets."""
        precisions = self.precisions(predictions)
        classes = {
            name: {**row, "AP": precision}
            for (name, row), precision in zip(
                predictions.details["classes"].items(), precisions, strict=True
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
        for class_scores, class_labels in zip(scores.T, labels.T, strict=True):
            order = np.argsort(-class_scores, kind="stable")
            present = class_labels == PRESENT
            hits, misses = present[order], (class_labels == ABSENT)[order]
            by_class.append(
                resampled_precision(hits, misses, order, present.astype(float), counts, recalls)
            )
        return resampled({"mAP": np.nanmean(by_class, axis=0)}, len(labels))

    def gallery(self, predictions: Predictions, folders: Folders) -> list[Tile]:
        """Return the test images with the worst ranks.

        As in the metric, images that are difficult for a class are not ranked.
        """
        images = open_images("voc07", "test", folders)
        labels, classes = predictions.labels, list(predictions.details["classes"])
        present, absent = labels == PRESENT, labels == ABSENT
        return worst_ranked(images, predictions.scores, present, absent, classes)


def can_be_scored(train: Tensor, test: Tensor) -> Tensor:
    """Return which classes (L,) have enough images to be scored.

    train, test: labels (n, L) and (m, L) of trainval and test. A class needs two positives in
    trainval, so that one can be held out.
    """
    present = train == PRESENT
    in_train = (present.sum(dim=0) >= 2) & ((~present).sum(dim=0) >= 2)
    return in_train & (test == PRESENT).any(dim=0)


def unit_length(features: Tensor, offset: float) -> Tensor:
    """Return features (n, C) divided by their norm plus an offset."""
    scaled: Tensor = features / (features.norm(dim=1, keepdim=True) + offset)
    return scaled


TASKS = {
    "voc07_svm": VOCSVM(),
    "voc07_svm@11point": VOCSVM(protocol="co2-2021-11point/1", points="11"),
}
