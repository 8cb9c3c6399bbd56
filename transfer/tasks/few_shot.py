"""Few-shot classifiers on frozen features, averaged over several draws of the images.

Few-shot classification trains linear classifiers on k images per class: LooC, arXiv:2008.05659,
section 4 and Tables 2, 4 and 5. Low-shot kNN uses 1 % or 10 % of the labels as its bank. No paper
of this suite reports it; the settings are the usual ones: k = 20 as in DINO, arXiv:2104.14294, and
the temperature of the kNN monitor in `knn.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pretrain.running.errors import NotFiniteError
from transfer.datasets.catalog import expected_sizes
from transfer.datasets.folders import Folders
from transfer.finetuning.options import length_fraction
from transfer.frozen.classifier import class_results
from transfer.frozen.feature_cache import Features, TrainAndTest, open_images
from transfer.galleries.mistakes import mistakes
from transfer.metrics import top1
from transfer.tasks.task import CenterCrops, occurring_classes, too_few_of_a_class

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
    details: dict[str, Any] = field(default_factory=dict)
    """Results by class."""

    @property
    def smallest_sets(self) -> Tensor:
        """Return the scores (trials, n, L) of the smallest training sets."""
        return self.scores[min(self.scores)]

    def accuracies(self, metric: str) -> dict[str, list[float]]:
        """Return top-1 in percent of each classifier, by metric name.

        metric: format string of the name, with the size as argument.
        """
        return {
            metric.format(size): [top1(trial, self.labels) for trial in scores]
            for size, scores in self.scores.items()
        }

    def means(self, metric: str) -> dict[str, float]:
        """Return the mean top-1 in percent over the classifiers of each size."""
        return {name: fmean(values) for name, values in self.accuracies(metric).items()}


def trial_scores(
    scores: dict[int, Tensor], labels: Tensor, names: Sequence[str], counted_over: str
) -> TrialScores:
    """Return the scores with accuracy by class and the most confused pairs.

    scores (trials, n, L) by size, labels (n,), names: L names. Accuracies are means over the
    classifiers of the smallest training sets. Pairs count the images of all these classifiers.

    counted_over: format string that describes them, with their number and size as arguments.
    """
    size = min(scores)
    num_trials = len(scores[size])
    results = class_results(
        scores[size].flatten(0, 1), labels.repeat(num_trials), names, repeats=num_trials
    )
    details = {**results, "classes_counted_over": counted_over.format(num_trials, size)}
    return TrialScores(scores, labels, details)


@dataclass(frozen=True, kw_only=True)
class FewShot(CenterCrops):
    """LooC's few-shot protocol: means of ten trials.

    The paper states iterations and learning rate of Adam. It does not state the pool (here: train
    and val), the augmentation (none) and the initial weights; we use the usual choices.
    """

    heading: ClassVar[str] = "Semi-supervised"

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
    def primary_metric(self) -> str:
        """Return the metric with the fewest images per class."""
        return f"acc_{min(self.shots)}shot"

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol at the length of a schedule."""
        if schedule == "smoke":
            return replace(self, trials=3, iterations=25)
        return replace(self, iterations=max(1, round(self.iterations * length_fraction(schedule))))

    def too_few_images(self, data: Path) -> str:
        """Return why there are too few training images; empty if not."""
        sizes = expected_sizes(self.dataset, data)
        num_images = sizes.counts.get("trainval", 0)
        if not num_images or max(self.shots) * sizes.classes <= num_images:  # 0: unknown
            return ""
        return (
            f"{max(self.shots)} images of each class are drawn, but {self.dataset} has "
            f"{num_images} training images of {sizes.classes} classes. Use the complete dataset"
        )

    def too_few_labels(self, images: Mapping[str, Images]) -> str:
        """Return which class has too few training images; empty if none has."""
        train, shots = images["trainval"], max(self.shots)
        return too_few_of_a_class(
            f"{self.dataset}, trainval",
            train,
            occurring_classes(train.class_names, *(split.label_array for split in images.values())),
            shots,
            f"{shots} of each class are drawn",
            "draw fewer, in Python: tasks.get(TASK).ablation(NAME, shots=...)",
        )

    def run(self, prepared: TrainAndTest, folders: Folders, seed: int) -> TrialScores:
        """Train all trials at once; return their scores on test.

        This takes a few seconds, so no state is saved.
        """
        import torch

        from transfer.frozen.few_shot_heads import Problem, draw_support, train_together

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
        if not bool(weight.isfinite().all()):
            raise NotFiniteError(
                f"a classifier diverged at learning rate {self.learning_rate}; no result is written"
            )
        test = prepared.test.features.to(weight.device)
        scores = torch.stack(
            [torch.addmm(b, test, w.T).cpu() for w, b in zip(weight, bias, strict=True)]
        )
        by_shot = dict(zip(self.shots, scores.split(self.trials), strict=True))
        counted_over = "{} trials of {} images per class"
        return trial_scores(by_shot, prepared.test.labels, prepared.class_names, counted_over)

    def metrics(self, predictions: TrialScores) -> dict[str, float]:
        """Return mean top-1 in percent, by number of shots."""
        return predictions.means("acc_{}shot")

    def gallery(self, predictions: TrialScores, folders: Folders) -> list[Tile]:
        """Return the most confident mistakes of the classifiers with the fewest shots."""
        images, scores = open_images(self.dataset, "test", folders), predictions.smallest_sets
        return mistakes(images, scores.softmax(dim=2).mean(dim=0), predictions.labels)

    def details(self, predictions: TrialScores) -> dict[str, object]:
        """Return trial accuracies, 95 % intervals, and results by class."""
        trials = predictions.accuracies("acc_{}shot")
        return {
            **super().details(predictions),
            "trials": trials,
            "interval95": {name: interval95(values) for name, values in trials.items()},
        }


def interval95(values: list[float]) -> float:
    """Return the half width of the mean's 95 % confidence interval.

    It is 1.96 s / sqrt(n), as in few-shot papers, and 0 for a single value.
    """
    return 1.96 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


@dataclass(frozen=True, kw_only=True)
class LowShotKNN(CenterCrops):
    """Weighted kNN with few labels, averaged over several banks."""

    heading: ClassVar[str] = "Nearest neighbors"

    protocol: str = "lowshot/1"
    percents: tuple[int, ...] = (1, 10)
    """Percentages of the training images that are in the bank."""
    draws: int = 5
    """Number of banks drawn per percentage."""
    num_neighbors: int = 20
    temperature: float = 0.1

    @property
    def primary_metric(self) -> str:
        """Return the metric of the smallest banks."""
        return f"top1_{min(self.percents)}pct"

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol; smoke: with fewer neighbors, since the bank is small."""
        num_neighbors = min(self.num_neighbors, 3) if schedule == "smoke" else self.num_neighbors
        return replace(self, num_neighbors=num_neighbors)

    def too_few_images(self, data: Path) -> str:
        """Return why the smallest bank is too small; empty if not."""
        sizes = expected_sizes(self.dataset, data)
        return self.too_small_bank(sizes.counts.get("trainval", 0), sizes.classes)

    def too_small_bank(self, num_images: int, num_classes: int) -> str:
        """Return why the smallest bank is too small; empty if not.

        num_images: number of training images; 0 if unknown.
        """
        percent = min(self.percents)
        bank = shots_of(num_images, num_classes, percent) * num_classes
        if not num_images or self.num_neighbors <= bank:
            return ""
        return (
            f"{self.num_neighbors} neighbors vote, but a bank of {percent} % of "
            f"{self.dataset} has {bank} training images. "
            "Use the complete dataset, or --schedule smoke for fewer neighbors"
        )

    def too_few_labels(self, images: Mapping[str, Images]) -> str:
        """Return why the banks cannot be drawn; empty if they can.

        A class may have too few images, or the smallest bank fewer images than neighbors.
        """
        train, percent = images["trainval"], max(self.percents)
        names = occurring_classes(
            train.class_names, *(split.label_array for split in images.values())
        )
        shots = shots_of(len(train), len(names), percent)
        reason = too_few_of_a_class(
            f"{self.dataset}, trainval",
            train,
            names,
            shots,
            f"a bank of {percent} % of the {len(train):,} images has {shots} of each class",
            "draw fewer, in Python: tasks.get(TASK).ablation(NAME, percents=...)",
        )
        return reason or self.too_small_bank(len(train), len(names))

    def run(self, prepared: TrainAndTest, folders: Folders, seed: int) -> TrialScores:
        """Return the kNN votes of all banks."""
        import torch

        from transfer.frozen.few_shot_heads import draw_support
        from transfer.frozen.nearest import knn_scores

        train = prepared.train

        def votes(percent: int, draw: int) -> Tensor:
            support = draw_support(
                train.labels,
                shots=shots_of(len(train.labels), len(prepared.class_names), percent),
                num_classes=len(prepared.class_names),
                seed=first_draw(seed) + draw,
            )
            return knn_scores(
                Features(train.features[support], train.labels[support]),
                prepared.test.features,
                num_classes=len(prepared.class_names),
                num_neighbors=self.num_neighbors,
                temperature=self.temperature,
            )

        scores = {
            percent: torch.stack([votes(percent, draw) for draw in range(self.draws)])
            for percent in self.percents
        }
        counted_over = "{} banks of {} % of the training images"
        return trial_scores(scores, prepared.test.labels, prepared.class_names, counted_over)

    def metrics(self, predictions: TrialScores) -> dict[str, float]:
        """Return the mean top-1 in percent over the banks of each percentage."""
        return predictions.means("top1_{}pct")

    def gallery(self, predictions: TrialScores, folders: Folders) -> list[Tile]:
        """Return the most confident mistakes with the smallest banks."""
        images, votes = open_images(self.dataset, "test", folders), predictions.smallest_sets
        probabilities = votes / votes.sum(dim=2, keepdim=True)
        return mistakes(images, probabilities.mean(dim=0), predictions.labels)

    def details(self, predictions: TrialScores) -> dict[str, object]:
        """Return top-1 in percent of each draw, and results by class."""
        return {**super().details(predictions), "draws": predictions.accuracies("top1_{}pct")}


def shots_of(num_images: int, num_classes: int, percent: int) -> int:
    """Return the images per class in a bank, at least one."""
    return max(1, round(num_images / num_classes * percent / 100))


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
