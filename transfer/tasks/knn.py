"""Weighted kNN classification on frozen features: Wu et al., CVPR 2018, arXiv:1805.01978.

The bank is the training set without augmentation. Each of the k nearest images by cosine similarity
votes for its class with the weight exp(similarity / temperature).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from transfer.datasets.folders import Folders
from transfer.frozen.classifier import class_results
from transfer.frozen.feature_cache import Predictions, TrainAndTest
from transfer.metrics import top1
from transfer.tasks.task import CenterCrops, too_few_neighbors


@dataclass(frozen=True, kw_only=True)
class KNN(CenterCrops):
    """Weighted kNN with the settings of MoCo's and SimSiam's CIFAR monitor.

    UniCLR does not state its settings.
    """

    heading: ClassVar[str] = "Nearest neighbors"
    seeded: ClassVar[bool] = False

    protocol: str = "uniclr-2022/1"
    num_neighbors: int = 200
    temperature: float = 0.1

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol; smoke: with fewer neighbors, since the bank is small."""
        num_neighbors = min(self.num_neighbors, 20) if schedule == "smoke" else self.num_neighbors
        return replace(self, num_neighbors=num_neighbors)

    def too_few(self, num_images: int, num_classes: int) -> str:
        """Return why there are fewer training images than neighbors; empty if enough."""
        return too_few_neighbors(self.num_neighbors, num_images, self.dataset)

    def run(self, prepared: TrainAndTest, folders: Folders, seed: int) -> Predictions:
        """Return the votes as scores; nothing depends on the seed."""
        from transfer.frozen.nearest import knn_scores

        scores = knn_scores(
            prepared.train,
            prepared.test.features,
            num_classes=len(prepared.class_names),
            num_neighbors=self.num_neighbors,
            temperature=self.temperature,
        )
        labels = prepared.test.labels
        return Predictions(scores, labels, class_results(scores, labels, prepared.class_names))

    def metrics(self, predictions: Predictions) -> dict[str, float]:
        """Return top-1 in percent."""
        return {"top1": top1(predictions.scores, predictions.labels)}


NOT_BY_DEFAULT = (
    "aircraft",
    "birdsnap",
    "caltech101",
    "cars",
    "dtd",
    "flowers",
    "food",
    "pets",
    "sun397",
    "places365",
    "in1k",
    "inat1k",
    "cub200",
)

TASKS = {
    "cifar10_knn": KNN(dataset="cifar10", crop_px=32, margin_px=0),
    "cifar100_knn": KNN(dataset="cifar100", crop_px=32, margin_px=0),
    "in100_knn": KNN(dataset="in100"),
    # k and temperature that DINO's authors recommend in eval_knn.py (Caron et al., ICCV 2021)
    "in1k_knn@dino": KNN(
        dataset="in1k",
        protocol="dino-2021/1",
        num_neighbors=20,
        temperature=0.07,
        by_default=False,
    ),
    **{f"{dataset}_knn": KNN(dataset=dataset, by_default=False) for dataset in NOT_BY_DEFAULT},
}
