"""Few-shot classifiers on frozen features, averaged over several draws of the images.

Few-shot classification trains linear classifiers on k images per class: LooC, arXiv:2008.05659,
section 4 and Tables 2, 4 and 5. Low-shot kNN uses 1 % or 10 % of the labels as its bank. No paper
of this suite reports it; the settings are the usual ones: k = 20 as in DINO, arXiv:2104.14294, and
the temperature of the kNN monitor in `knn.py`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, ClassVar, Self

from transfer.datasets.folders import Folders
from transfer.finetuning.options import length_fraction
from transfer.frozen.classifier import class_results
from transfer.frozen.feature_cache import Features, TrainAndTest, open_images
from transfer.galleries.mistakes import mistakes
from transfer.metrics import top1
from transfer.tasks.task import (
    CenterCrops,
    occurring_classes,
    too_few_neighbors,
    too_few_of_a_class,
)

if TYPE_CHECKING:
    from torch import Tensor

    from transfer.datasets.images import Images
    from transfer.galleries.tile import Tile


@dataclass(frozen=True)
class TrialScores:
    """Scores of all classifiers, one per draw."""

    scores: dict[int, Tensor]
    """Scores (trials, n, L) by shots or percentage of labels."""
    labels: Tensor
    """(n,)."""
    class_names: tuple[str, ...] = ()
    """Names of the L classes."""


@dataclass(frozen=True, kw_only=True)
class FewLabels(CenterCrops):
    """Base class of tasks with few labels, averaged over several draws of the images."""

    metric: ClassVar[str]
    """Format string of a metric's name, with the shots or the percentage as argument."""
    draws_name: ClassVar[str]
    """Key of the accuracies of all draws in the record."""
    counted_over: ClassVar[str]
    """Format string for results by class, with number and size of the draws as arguments."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """Return the shots, or the percentages of labels."""

    @property
    def primary_metric(self) -> str:
        """Return the metric of the smallest training sets."""
        return self.metric.format(min(self.sizes))

    def images_per_class(self, size: int, num_images: int, num_classes: int) -> int:
        """Return the number of images drawn from each class."""
        return size

    def too_few_labels(self, images: Mapping[str, Images]) -> str:
        """Return why the training images cannot be drawn; empty if they can."""
        train, labels = images["trainval"], (split.label_array for split in images.values())
        names = occurring_classes(train.class_names, *labels)
        per_class = self.images_per_class(max(self.sizes), len(train), len(names))
        purpose = f"{per_class} are drawn from each class"
        reason = too_few_of_a_class(f"{self.dataset}, trainval", train, names, per_class, purpose)
        return reason or self.too_few(len(train), len(names))

    def accuracies(self, predictions: TrialScores) -> dict[str, list[float]]:
        """Return top-1 in percent of each classifier, by metric name."""
        return {
            self.metric.format(size): [top1(trial, predictions.labels) for trial in scores]
            for size, scores in predictions.scores.items()
        }

    def metrics(self, predictions: TrialScores) -> dict[str, float]:
        """Return the mean top-1 in percent over the draws of each size."""
        return {name: fmean(values) for name, values in self.accuracies(predictions).items()}

    def details(self, predictions: TrialScores) -> dict[str, object]:
        """Return top-1 in percent of each draw, and results by class.

        Results by class are means over the classifiers of the smallest training sets. Pairs of
        confused classes count the images of all these classifiers.
        """
        size = min(predictions.scores)
        scores, labels = predictions.scores[size], predictions.labels
        num_draws = len(scores)
        return {
            **class_results(
                scores.flatten(0, 1),
                labels.repeat(num_draws),
                predictions.class_names,
                repeats=num_draws,
            ),
            "classes_counted_over": self.counted_over.format(num_draws, size),
            "num_test": len(labels),
            self.draws_name: self.accuracies(predictions),
        }

    @abstractmethod
    def probabilities(self, scores: Tensor) -> Tensor:
        """Return probabilities (trials, n, L) of the classes from scores of this shape."""

    def gallery(self, predictions: TrialScores, folders: Folders) -> list[Tile]:
        """Return the most confident mistakes with the smallest training sets."""
        images = open_images(self.dataset, "test", folders)
        probabilities = self.probabilities(predictions.scores[min(predictions.scores)])
        return mistakes(images, probabilities.mean(dim=0), predictions.labels)


@dataclass(frozen=True, kw_only=True)
class FewShot(FewLabels):
    """LooC's few-shot protocol: means of ten trials.

    The paper states iterations and learning rate of Adam. It does not state the pool (here: train
    and val), the augmentation (none) and the initial weights; we use the usual choices.
    """

    heading: ClassVar[str] = "Semi-supervised"
    metric: ClassVar[str] = "acc_{}shot"
    draws_name: ClassVar[str] = "trials"
    counted_over: ClassVar[str] = "{} trials of {} images per class"

    protocol: str = "looc-2020/1"
    shots: tuple[int, ...] = (5, 10)
    """Numbers k of training images per class."""
    trials: int = 10
    """Number of draws; each also has its own initial weights."""
    iterations: int = 250
    """Optimizer steps (Adam)."""
    learning_rate: float = 0.03
    batch_size: int = 256

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the shots."""
        return self.shots

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol at the length of a schedule."""
        if schedule == "smoke":
            return replace(self, trials=3, iterations=25)
        return replace(self, iterations=max(1, round(self.iterations * length_fraction(schedule))))

    def run(self, prepared: TrainAndTest, folders: Folders, seed: int) -> TrialScores:
        """Train all trials at once; return their scores on test.

        This takes a few seconds, so no state is saved.
        """
        import torch

        from transfer.frozen.few_shot_heads import Problem, draw_support, train_together
        from transfer.frozen.finite import require_converged

        labels, num_classes = prepared.train.labels, len(prepared.class_names)
        # one seed per trial, so that fewer shots are a subset; the seeds of runs are 2^20 apart
        problems = [
            Problem(
                draw_support(
                    labels, shots=shots, num_classes=num_classes, seed=first_draw(seed) + trial
                ),
                seed=first_draw(seed) + 1000 * (1 + trial) + shots,
            )
            for shots in self.shots
            for trial in range(self.trials)
        ]
        weight, bias = train_together(
            prepared.train,
            problems,
            num_classes=num_classes,
            iterations=self.iterations,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
        )
        test = prepared.test.features.to(weight.device)
        scores = torch.stack(
            [torch.addmm(b, test, w.T).cpu() for w, b in zip(weight, bias, strict=True)]
        )
        require_converged(scores, self.learning_rate)
        by_shot = dict(zip(self.shots, scores.split(self.trials), strict=True))
        return TrialScores(by_shot, prepared.test.labels, prepared.class_names)

    def probabilities(self, scores: Tensor) -> Tensor:
        """Return the softmax."""
        return scores.softmax(dim=2)

    def details(self, predictions: TrialScores) -> dict[str, object]:
        """Return trial accuracies, 95 % intervals of their means, and results by class.

        An interval's half width is 1.96 s / sqrt(n), as in few-shot papers; 0 for a single trial.
        """
        intervals = {
            name: 1.96 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
            for name, values in self.accuracies(predictions).items()
        }
        return {**super().details(predictions), "interval95": intervals}


@dataclass(frozen=True, kw_only=True)
class LowShotKNN(FewLabels):
    """Weighted kNN with few labels, averaged over several banks."""

    heading: ClassVar[str] = "Nearest neighbors"
    metric: ClassVar[str] = "top1_{}pct"
    draws_name: ClassVar[str] = "draws"
    counted_over: ClassVar[str] = "{} banks of {} % of the training images"

    protocol: str = "lowshot/1"
    percents: tuple[int, ...] = (1, 10)
    """Percentages of the training images that are in the bank."""
    draws: int = 5
    """Number of banks drawn per percentage."""
    num_neighbors: int = 20
    temperature: float = 0.1

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the percentages."""
        return self.percents

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol; smoke: with fewer neighbors, since the bank is small."""
        num_neighbors = min(self.num_neighbors, 3) if schedule == "smoke" else self.num_neighbors
        return replace(self, num_neighbors=num_neighbors)

    def images_per_class(self, size: int, num_images: int, num_classes: int) -> int:
        """Return the images per class in a bank, at least one."""
        return max(1, round(num_images / num_classes * size / 100))

    def too_few(self, num_images: int, num_classes: int) -> str:
        """Return why the smallest bank has fewer images than neighbors; empty if not."""
        percent = min(self.percents)
        bank = self.images_per_class(percent, num_images, num_classes) * num_classes
        return too_few_neighbors(
            self.num_neighbors, bank, f"a bank of {percent} % of {self.dataset}"
        )

    def run(self, prepared: TrainAndTest, folders: Folders, seed: int) -> TrialScores:
        """Return the kNN votes of all banks."""
        import torch

        from transfer.frozen.few_shot_heads import draw_support
        from transfer.frozen.nearest import knn_scores

        train, num_classes = prepared.train, len(prepared.class_names)

        def votes(percent: int, draw: int) -> Tensor:
            support = draw_support(
                train.labels,
                shots=self.images_per_class(percent, len(train.labels), num_classes),
                num_classes=num_classes,
                seed=first_draw(seed) + draw,
            )
            return knn_scores(
                Features(train.features[support], train.labels[support]),
                prepared.test.features,
                num_classes=num_classes,
                num_neighbors=self.num_neighbors,
                temperature=self.temperature,
            )

        scores = {
            percent: torch.stack([votes(percent, draw) for draw in range(self.draws)])
            for percent in self.percents
        }
        return TrialScores(scores, prepared.test.labels, prepared.class_names)

    def probabilities(self, scores: Tensor) -> Tensor:
        """Return each class's fraction of the votes."""
        return scores / scores.sum(dim=2, keepdim=True)


TASKS: dict[str, FewShot | LowShotKNN] = {
    "cifar10_lowshot_knn": LowShotKNN(dataset="cifar10", crop_px=32, margin_px=0),
    "cifar100_lowshot_knn": LowShotKNN(dataset="cifar100", crop_px=32, margin_px=0),
    "in100_lowshot_knn": LowShotKNN(dataset="in100", by_default=False),
    "flowers102_fewshot": FewShot(dataset="flowers"),
    "cifar10_fewshot": FewShot(dataset="cifar10", crop_px=32, margin_px=0, by_default=False),
}


def first_draw(seed: int) -> int:
    """Return the first seed of the draws; generators use 32 bits."""
    return (seed << 20) + (seed >> 12) * 2654435761
