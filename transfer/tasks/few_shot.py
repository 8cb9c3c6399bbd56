"""Few-shot classification: LooC, arXiv:2008.05659, section 4 and Tables 2, 4 and 5.

A linear classifier on frozen features of k images per class, for several k and several draws of the
images. It is scored on the whole test split; the result is the mean over the draws with its 95 %
interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, ClassVar

from pretrain.running.errors import NotFiniteError
from transfer.datasets.catalog import expected_sizes
from transfer.frozen.features import TrainAndTest
from transfer.running.folders import Folders
from transfer.running.option_ranges import length_fraction
from transfer.tasks.task import CenterCrops, Classification, Task

if TYPE_CHECKING:
    from torch import Tensor

    from transfer.frozen.few_shot_heads import Problem
    from transfer.galleries.tile import Tile


@dataclass(frozen=True)
class FewShotScores:
    """Scores of all trials, by number of shots."""

    scores: dict[int, Tensor]
    """Scores (trials, n, L) per number of shots."""
    labels: Tensor
    """(n,)."""
    details: dict[str, Any] = field(default_factory=dict)
    """Numbers by class."""


@dataclass(frozen=True, kw_only=True)
class FewShot(CenterCrops, Classification, Task):
    """LooC's few-shot protocol: means of ten trials.

    The paper names iterations and rate of Adam. It does not name the pool (train and val together
    here), the augmentation (none) and the initial weights; these are the usual choices.
    """

    heading: ClassVar[str] = "Few labels"
    primary_metric: ClassVar[str] = "acc_5shot"

    protocol: str = "looc-2020/1"
    shots: tuple[int, ...] = (5, 10)
    """Numbers k of images per class."""
    trials: int = 10
    """Number of draws of the images; each has its own initial weights, too."""
    iterations: int = 250
    """Steps of Adam."""
    learning_rate: float = 0.03
    batch_size: int = 256

    def at_schedule(self, schedule: str) -> FewShot:
        """Return the protocol at the length of a schedule."""
        if schedule == "smoke":
            return replace(self, trials=3, iterations=25)
        if schedule == "paper":
            return self
        return replace(self, iterations=max(1, round(self.iterations * length_fraction(schedule))))

    def too_few_images(self, data: Path) -> str:
        """Return why a class cannot have as many images as are drawn of it; empty if it can."""
        sizes = expected_sizes(self.dataset, data)
        num_images = sizes.counts.get("trainval", 0)
        if not num_images or max(self.shots) * sizes.classes <= num_images:  # 0: not known
            return ""
        return (
            f"{max(self.shots)} images of each class are drawn, but {self.dataset} has "
            f"{num_images} training images of {sizes.classes} classes; use the complete data set"
        )

    def run(self, prepared: TrainAndTest, folders: Folders, seed: int) -> FewShotScores:
        """Train all trials at once; return their scores on test.

        This takes a few seconds, so that no state is saved.
        """
        import torch

        from transfer.frozen.few_shot_heads import FewShotTraining, train_together

        problems = self.problems(prepared, seed)
        training = FewShotTraining(
            iterations=self.iterations,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
        )
        weight, bias = train_together(
            prepared.train, problems, training, num_classes=prepared.num_classes
        )
        if not bool(weight.isfinite().all()):
            raise NotFiniteError(
                f"a classifier of rate {self.learning_rate} diverged; no result is written"
            )
        test = prepared.test.features.to(weight.device)
        scores = torch.stack(
            [torch.addmm(b, test, w.T).cpu() for w, b in zip(weight, bias, strict=True)]
        )
        by_shot = dict(zip(self.shots, scores.split(self.trials), strict=True))
        labels = prepared.test.labels
        names = self.class_names(prepared, folders)
        return FewShotScores(by_shot, labels, self.class_numbers(by_shot, labels, names))

    def class_numbers(
        self, scores: Mapping[int, Tensor], labels: Tensor, names: Sequence[str]
    ) -> dict[str, Any]:
        """Return accuracy by class, mean over the trials of the fewest shots, and confused pairs.

        scores (trials, n, L) per number of shots, labels (n,), names: L names. A pair counts the
        images of all these trials.
        """
        from transfer.frozen.classifier import class_results

        shots = min(scores)
        trials = scores[shots]
        return {
            **class_results(
                trials.flatten(0, 1), labels.repeat(len(trials)), names, repeats=len(trials)
            ),
            "classes_counted_over": f"{len(trials)} trials of {shots} images per class",
        }

    def problems(self, prepared: TrainAndTest, seed: int) -> list[Problem]:
        """Return all trials of the first number of shots, then of the next."""
        from transfer.frozen.few_shot_heads import Problem, draw_support

        # one seed per trial nests the images of its shots; the seeds of runs lie 2^20 apart
        return [
            Problem(
                draw_support(
                    prepared.train.labels,
                    shots=shots,
                    num_classes=prepared.num_classes,
                    seed=(seed << 20) + trial,
                ),
                seed=(seed << 20) + 1000 * (1 + trial) + shots,
            )
            for shots in self.shots
            for trial in range(self.trials)
        ]

    def accuracies(self, predictions: FewShotScores, shots: int) -> list[float]:
        """Return top-1 in percent of each trial."""
        from transfer.metrics import top1

        return [top1(scores, predictions.labels) for scores in predictions.scores[shots]]

    def metrics(self, predictions: FewShotScores) -> dict[str, float]:
        """Return accuracies in percent, means over the trials."""
        return {
            f"acc_{shots}shot": fmean(self.accuracies(predictions, shots))
            for shots in predictions.scores
        }

    def details(self, predictions: FewShotScores) -> dict[str, object]:
        """Return the accuracy of each trial, 95 % intervals of the metrics, and numbers by class.

        An interval is given by its half width.
        """
        trials = {
            f"acc_{shots}shot": self.accuracies(predictions, shots) for shots in predictions.scores
        }
        return {
            **super().details(predictions),
            "trials": trials,
            "interval95": {name: interval95(values) for name, values in trials.items()},
        }

    def gallery(self, predictions: FewShotScores, folders: Folders) -> list[Tile]:
        """Return the test images about which the trials of the fewest shots are most wrong."""
        from transfer.galleries.mistakes import mistakes_over_runs

        images = self.test_images(folders)
        shares = predictions.scores[min(predictions.scores)].softmax(dim=2)
        return mistakes_over_runs(images, shares, predictions.labels, "trials")


def interval95(values: list[float]) -> float:
    """Return the half width of the mean's 95 % interval, 1.96 s / sqrt(n), as few-shot papers do.

    It is 0 for a single value.
    """
    return 1.96 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


TASKS = {
    "flowers102_fewshot": FewShot(dataset="flowers"),
    "cifar10_fewshot": FewShot(dataset="cifar10", crop_px=32, margin_px=0, by_default=False),
}
