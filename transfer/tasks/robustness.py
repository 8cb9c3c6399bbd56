"""The ImageNet-100 classifier on other test sets: LooC, arXiv:2008.05659, Table 3.

The classifier is not trained again. ObjectNet: thirteen of the classes from other viewpoints; the
classifier predicts any of its hundred classes. ImageNet-C: the val images under nineteen
corruptions at five severities; the metric is accuracy, not the benchmark's corruption error.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from transfer.datasets.folders import Folders
from transfer.datasets.imagenet.imagenet_c import GROUPS, KINDS, MAIN_KINDS, kind_and_severity
from transfer.datasets.imagenet.objectnet import BORDER_PX, with_readable_names
from transfer.encoders.encoder import Encoder
from transfer.frozen.classifier import class_results, labels_among, load_classifier
from transfer.frozen.feature_cache import Features, Predictions, open_images
from transfer.frozen.transforms import EvalTransform
from transfer.galleries.mistakes import corrupted_mistakes, mistakes
from transfer.metrics import top1
from transfer.tasks.task import CROPS, FrozenTask

if TYPE_CHECKING:
    from torch import Tensor

    from transfer.frozen.classifier import Heads
    from transfer.galleries.tile import Tile

SEVERE = 3
"""Lowest severity d of the paper's d >= 3."""


@dataclass(frozen=True)
class ClassifierTest:
    """A trained classifier and the test images of another dataset."""

    head: Heads
    classes: tuple[str, ...]
    """Names of the L classes of the classifier."""
    test: Features
    """Features of the test images; labels are indices into the classifier's classes."""
    files: tuple[str, ...]
    """File names of the test images."""


@dataclass(frozen=True, kw_only=True)
class TrainedClassifier(FrozenTask):
    """Base class: test of the ImageNet-100 classifier on another test set."""

    heading: ClassVar[str] = "Robustness"
    supported_options: ClassVar[frozenset[str]] = CROPS

    protocol: str = "looc-2020/1"
    classifier: str = "in100_linear@looc"
    """Key of the task that trains the classifier.

    Schedules change only the length of that task."""
    classes_of: str = "in100"
    """Key of the dataset that the classifier is trained on."""

    @property
    def classifier_task(self) -> str:
        """Return the key of the task that trains the classifier."""
        return self.classifier

    def datasets(self) -> tuple[str, ...]:
        """Return the keys of the datasets, including the classifier's."""
        return (self.dataset, self.classes_of)

    @property
    @abstractmethod
    def transform(self) -> EvalTransform:
        """Return the transform of the test images."""

    def extracted(self) -> list[tuple[str, EvalTransform]]:
        """Return the test images."""
        return [("test", self.transform)]

    def prepare(self, backbone: Encoder, folders: Folders) -> ClassifierTest:
        """Return the classifier and the test features, computed or from the cache."""
        head = load_classifier(folders.classifier) if folders.classifier else None
        if head is None:
            raise FileNotFoundError(
                f"{folders.classifier}: damaged. Delete it, so that {self.classifier} runs again"
            )
        images, trained = (open_images(key, "test", folders) for key in self.datasets())
        (test,) = self.features(backbone, folders)
        labels = labels_among(test.labels, images.class_names, trained.class_names)
        files = tuple(images.name(i) for i in range(len(images)))
        return ClassifierTest(head, self.classes(folders), Features(test.features, labels), files)

    def run(self, prepared: ClassifierTest, folders: Folders, seed: int) -> Predictions:
        """Return the scores of all classes, and results by class."""
        labels, scores = prepared.test.labels, prepared.head.scores(prepared.test.features)[0]
        return Predictions(scores, labels, class_results(scores, labels, prepared.classes))

    def classes(self, folders: Folders) -> tuple[str, ...]:
        """Return the classifier's class names, as galleries and records show them."""
        return open_images(self.classes_of, "test", folders).class_names


@dataclass(frozen=True, kw_only=True)
class ObjectNetEval(TrainedClassifier):
    """LooC's test of the ImageNet-100 classifier on other viewpoints."""

    dataset: str = "objectnet13"
    border_px: int = BORDER_PX
    """Width of the red border, which is cut off."""
    margin_px: int = 32
    """Margin around the crop, as in the linear probe."""

    @property
    def transform(self) -> EvalTransform:
        """Return the transform of the test images."""
        centered = EvalTransform.center(self.crop_px, self.margin_px)
        return replace(centered, border_px=self.border_px)

    def classes(self, folders: Folders) -> tuple[str, ...]:
        """Return the classifier's class names, with the names that ObjectNet gives them."""
        return with_readable_names(super().classes(folders))

    def gallery(self, predictions: Predictions, folders: Folders) -> list[Tile]:
        """Return pictures of the most confident mistakes."""
        images = open_images(self.dataset, "test", folders)
        return mistakes(images, predictions.scores, predictions.labels, self.classes(folders))


def accuracies(
    scores: Tensor, labels: Tensor, corruptions: Sequence[tuple[str, int]]
) -> dict[str, dict[int, float]]:
    """Return top-1 in percent by kind and severity.

    scores (n, L), labels (n,). corruptions (n,): kind, such as "glass_blur", and severity.
    """
    kinds, severities = (np.array(column) for column in zip(*corruptions, strict=True))
    table: dict[str, dict[int, float]] = {}
    for kind, severity in dict.fromkeys(corruptions):
        rows = (kinds == kind) & (severities == severity)
        table.setdefault(kind, {})[severity] = top1(scores[rows], labels[rows])
    return table


@dataclass(frozen=True, kw_only=True)
class CorruptionEval(TrainedClassifier):
    """LooC's test of the ImageNet-100 classifier under corruptions.

    The paper's column All exceeds the mean over the fifteen corruptions that it prints in groups,
    and agrees with the mean over all nineteen published corruptions. We report both.
    """

    primary_metric: ClassVar[str] = "all_top1"

    dataset: str = "imagenet_c100"
    resize_px: int = 224
    """Length of the short side; published images need no resize."""

    def for_backbone(self, backbone: Encoder) -> Self:
        """Return the protocol with the backbone's image size."""
        return replace(super().for_backbone(backbone), resize_px=backbone.input.size_px)

    @property
    def transform(self) -> EvalTransform:
        """Return the transform of the test images."""
        return EvalTransform(resize_px=self.resize_px, crop_px=self.crop_px)

    def run(self, prepared: ClassifierTest, folders: Folders, seed: int) -> Predictions:
        """Return the scores of all classes, and results by class and corruption."""
        predictions = super().run(prepared, folders, seed)
        scores, labels, files = predictions.scores, predictions.labels, prepared.files
        details = {
            **predictions.details,
            **correct_over_corruptions(scores, labels, files),
            "classes_counted_over": "all corruptions and severities",
            "top1": accuracies(scores, labels, list(map(kind_and_severity, files))),
        }
        return Predictions(scores, labels, details)

    def metrics(self, predictions: Predictions) -> dict[str, float]:
        """Return the mean top-1 in percent over corruptions and severities.

        "all" is the mean over the fifteen corruptions in groups, "all19" over all nineteen.
        """
        table = predictions.details["top1"]

        def mean(kinds: Iterable[str], *, min_severity: int = 1) -> float:
            return fmean(
                table[kind][severity]
                for kind in kinds
                for severity in table[kind]
                if severity >= min_severity
            )

        accuracy = {f"{group}_top1": mean(kinds) for group, kinds in GROUPS.items()}
        accuracy |= {
            "all_top1": mean(MAIN_KINDS),
            "sev3plus_top1": mean(MAIN_KINDS, min_severity=SEVERE),
        }
        if set(KINDS) <= set(table):
            accuracy |= {
                "all19_top1": mean(KINDS),
                "sev3plus19_top1": mean(KINDS, min_severity=SEVERE),
            }
        return accuracy

    def gallery(self, predictions: Predictions, folders: Folders) -> list[Tile]:
        """Return pictures of the most confident mistakes, at most one per corruption."""
        images = open_images(self.dataset, "test", folders)
        corruptions = [kind_and_severity(images.name(i)) for i in range(len(images))]
        scores, labels = predictions.scores, predictions.labels
        return corrupted_mistakes(images, scores, labels, corruptions, self.classes(folders))


def correct_over_corruptions(
    scores: Tensor, labels: Tensor, files: Sequence[str]
) -> dict[str, Any]:
    """Return under how many main corruptions each original image is classified correctly.

    scores (n, L), labels (n,), files: names of the n images. None if an original image lacks a
    corruption, since the metric then weights it differently.
    """
    from transfer.outcomes import PER_IMAGE, per_image

    is_main = np.isin([kind_and_severity(file)[0] for file in files], MAIN_KINDS)
    names = np.array([file.rpartition("/")[2] for file in files])[is_main]
    correct = (scores.argmax(dim=1) == labels).numpy()[is_main]
    _, first, index = np.unique(names, return_index=True, return_inverse=True)
    counts = np.bincount(index)
    if not len(counts) or counts.min() < counts.max():
        return {PER_IMAGE: None}
    image_labels = labels.numpy()[is_main][first]
    return per_image(
        np.bincount(index, correct).round(), image_labels, num_predictions=int(counts[0])
    )


TASKS: dict[str, TrainedClassifier] = {
    "objectnet13_eval": ObjectNetEval(),
    "imagenet_c100_eval": CorruptionEval(),
}
