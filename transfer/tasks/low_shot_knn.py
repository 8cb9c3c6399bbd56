"""Nearest neighbors in a bank of a few labelled images: 1 % and 10 % of the training set.

The task lies between few-shot classification and the full nearest-neighbor monitor (`knn.py`). No
paper of this suite prints it. The settings are the usual ones: k 20 as in DINO, arXiv:2104.14294,
and the temperature of the full monitor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from transfer.datasets.catalog import expected_sizes
from transfer.frozen.features import Features, TrainAndTest
from transfer.running.folders import Folders
from transfer.tasks.task import CenterCrops, Classification, Task

if TYPE_CHECKING:
    from torch import Tensor

    from transfer.galleries.tile import Tile


@dataclass(frozen=True)
class LowShotVotes:
    """Votes of every bank."""

    votes: dict[str, list[Tensor]]
    """Votes (n, L) of each draw, by share such as "1pct"."""
    labels: Tensor
    """(n,)."""
    details: dict[str, Any] = field(default_factory=dict)
    """Numbers by class."""


@dataclass(frozen=True, kw_only=True)
class LowShotKNN(CenterCrops, Classification, Task):
    """Weighted nearest neighbors in banks of 1 % and 10 % of the labels; means over five draws."""

    heading: ClassVar[str] = "Nearest neighbors"
    primary_metric: ClassVar[str] = "top1_1pct"

    protocol: str = "lowshot/1"
    percents: tuple[int, ...] = (1, 10)
    """Percentages of each class's training images in the bank, at least one image."""
    draws: int = 5
    """Number of banks drawn per percentage."""
    num_neighbors: int = 20
    temperature: float = 0.1

    def at_schedule(self, schedule: str) -> LowShotKNN:
        """Return the protocol, for smoke with fewer neighbors, since its bank is small."""
        return replace(self, num_neighbors=3) if schedule == "smoke" else self

    def too_few_images(self, data: Path) -> str:
        """Return why the smallest bank cannot hold as many neighbors as vote; empty if it can."""
        sizes = expected_sizes(self.dataset, data)
        num_images = sizes.counts.get("trainval", 0)
        shots = self.shots(num_images, sizes.classes, min(self.percents))
        if not num_images or self.num_neighbors <= shots * sizes.classes:  # 0: not known
            return ""
        return (
            f"{self.num_neighbors} neighbors vote, but a bank of {min(self.percents)} % of "
            f"{self.dataset} has {shots * sizes.classes} training images; "
            "use the complete data set, or --schedule smoke for fewer neighbors"
        )

    def shots(self, num_images: int, num_classes: int, percent: int) -> int:
        """Return the images of each class in a bank, at least one."""
        return max(1, round(num_images / num_classes * percent / 100))

    def run(self, prepared: TrainAndTest, folders: Folders, seed: int) -> LowShotVotes:
        """Return the votes of all banks."""
        from transfer.frozen.nearest import knn_scores

        votes = {
            f"{percent}pct": [
                knn_scores(
                    self.bank(prepared, percent, (seed << 20) + draw),
                    prepared.test.features,
                    num_classes=prepared.num_classes,
                    num_neighbors=self.num_neighbors,
                    temperature=self.temperature,
                )
                for draw in range(self.draws)
            ]
            for percent in self.percents
        }
        labels = prepared.test.labels
        names = self.class_names(prepared, folders)
        return LowShotVotes(votes, labels, self.class_numbers(votes, labels, names))

    @property
    def smallest(self) -> str:
        """Return the smallest share of labels by its name in the votes."""
        return f"{min(self.percents)}pct"

    def class_numbers(
        self, votes: Mapping[str, Sequence[Tensor]], labels: Tensor, names: Sequence[str]
    ) -> dict[str, Any]:
        """Return accuracy by class, mean over the smallest banks, and the most confused pairs.

        votes (n, L) of each draw per share, labels (n,), names: L names. A pair counts the images
        of all these draws.
        """
        import torch

        from transfer.frozen.classifier import class_results

        draws = votes[self.smallest]
        percent = min(self.percents)
        return {
            **class_results(
                torch.cat(list(draws)), labels.repeat(len(draws)), names, repeats=len(draws)
            ),
            "classes_counted_over": f"{len(draws)} banks of {percent} % of the training images",
        }

    def bank(self, prepared: TrainAndTest, percent: int, seed: int) -> Features:
        """Return a drawn bank of equally many images of every class."""
        from transfer.frozen.few_shot_heads import draw_support

        train = prepared.train
        support = draw_support(
            train.labels,
            shots=self.shots(len(train.labels), prepared.num_classes, percent),
            num_classes=prepared.num_classes,
            seed=seed,
        )
        return Features(train.features[support], train.labels[support])

    def metrics(self, predictions: LowShotVotes) -> dict[str, float]:
        """Return top-1 in percent, means over the draws."""
        from transfer.metrics import top1

        return {
            f"top1_{share}": fmean(top1(votes, predictions.labels) for votes in draws)
            for share, draws in predictions.votes.items()
        }

    def details(self, predictions: LowShotVotes) -> dict[str, object]:
        """Return top-1 in percent of each draw, and numbers by class."""
        from transfer.metrics import top1

        return {
            **super().details(predictions),
            "draws": {
                f"top1_{share}": [top1(votes, predictions.labels) for votes in draws]
                for share, draws in predictions.votes.items()
            },
        }

    def gallery(self, predictions: LowShotVotes, folders: Folders) -> list[Tile]:
        """Return the test images about which the smallest banks are most wrong."""
        import torch

        from transfer.galleries.mistakes import mistakes_over_runs

        images = self.test_images(folders)
        votes = torch.stack(predictions.votes[self.smallest])
        shares = votes / votes.sum(dim=2, keepdim=True)
        return mistakes_over_runs(images, shares, predictions.labels, "banks")


TASKS = {
    "cifar10_lowshot_knn": LowShotKNN(dataset="cifar10", crop_px=32, margin_px=0),
    "cifar100_lowshot_knn": LowShotKNN(dataset="cifar100", crop_px=32, margin_px=0),
    "in100_lowshot_knn": LowShotKNN(dataset="in100", by_default=False),
}
