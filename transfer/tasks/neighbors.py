"""The nearest training images of a few test images, as LooC's figure 3 shows them.

Xiao et al., ICLR 2021, arXiv:2008.05659. The paper does not give number, distance or gallery: here
they are the eight nearest training images by cosine similarity of features. The queries are drawn
once for all backbones, so that figures of two backbones show the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar, Never

from transfer.datasets.folders import Folders
from transfer.datasets.images import describe_image
from transfer.frozen.feature_cache import TrainAndTest, open_images
from transfer.outcomes import per_image
from transfer.tasks.task import NearestTraining

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Neighbors:
    """The nearest training images of every test image, and what is shown of some."""

    labels: Tensor
    """(n,) of the test images."""
    neighbor_labels: Tensor
    """(n, k), nearest first."""
    queries: list[dict[str, Any]] = field(default_factory=list)
    """Shown queries with their neighbors, for the record."""


@dataclass(frozen=True, kw_only=True)
class NearestImages(NearestTraining):
    """The nearest training images of test images, and how many are of the query's class."""

    heading: ClassVar[str] = "Figures"
    seeded: ClassVar[bool] = False
    primary_metric: ClassVar[str] = "same_class"

    protocol: str = "looc-2020/1"
    num_neighbors: int = 8
    """k."""
    num_queries: int = 20
    """Test images that the record shows, of as many classes as possible."""
    query_draw: int = 0
    """Seed of the draw of the queries, the same for every run."""

    def too_few(self, num_images: int) -> str:
        """Return why so many training images are too few; empty if they are enough."""
        if num_images >= self.num_neighbors:
            return ""
        shown = f"{self.num_neighbors} neighbors are shown"
        return f"{shown}, but {self.dataset} has {num_images} training images"

    def run(self, prepared: TrainAndTest, folders: Folders, seed: int) -> Neighbors:
        """Return the neighbors; the seed has no effect, since the queries are the same for all."""
        from transfer.frozen.nearest import nearest_rows

        train, test = prepared.train, prepared.test
        similarities, nearest = nearest_rows(train.features, test.features, self.num_neighbors)
        bank, tested = (open_images(self.dataset, s, folders) for s in ("trainval", "test"))

        def neighbors(query: int) -> list[dict[str, Any]]:
            rows = zip(nearest[query].tolist(), similarities[query].tolist(), strict=True)
            return [describe_image(bank, i) | {"cosine": round(cosine, 6)} for i, cosine in rows]

        shown = [
            describe_image(tested, query) | {"neighbors": neighbors(query)}
            for query in self.draw_queries(test.labels)
        ]
        return Neighbors(test.labels, train.labels[nearest], shown)

    def draw_queries(self, labels: Tensor) -> list[int]:
        """Return the test images to show: drawn classes in turn, then drawn images of each."""
        import torch

        generator = torch.Generator().manual_seed(self.query_draw)
        order = torch.randperm(len(labels), generator=generator)
        classes = labels.unique()
        classes = classes[torch.randperm(len(classes), generator=generator)].tolist()
        of_class = {label: order[labels[order] == label].tolist() for label in classes}
        turns = zip_longest(*of_class.values())
        in_turn = [image for turn in turns for image in turn if image is not None]
        shown = in_turn[: self.num_queries]
        return sorted(shown, key=lambda index: (int(labels[index]), index))

    def metrics(self, predictions: Neighbors) -> dict[str, float]:
        """Return the share in percent of neighbors of the query's class, over all test images."""
        same = predictions.neighbor_labels == predictions.labels[:, None]
        return {"same_class": 100 * float(same.double().mean())}

    def details(self, predictions: Neighbors) -> dict[str, object]:
        """Return the shown queries, the number of test images, and how many neighbors agree."""
        same = predictions.neighbor_labels == predictions.labels[:, None]
        right = per_image(same.sum(dim=1).numpy(), predictions.labels.numpy(), of=same.shape[1])
        return {"queries": predictions.queries, "num_test": len(predictions.labels), **right}

    def gallery(self, predictions: Neighbors, folders: Folders) -> list[Never]:
        """Return nothing: the record shows the queries."""
        return []


TASKS = {
    "cifar10_neighbors": NearestImages(
        dataset="cifar10", crop_px=32, margin_px=0, by_default=False
    ),
    # photographs make larger thumbnails
    "in100_neighbors": NearestImages(dataset="in100", num_queries=12, by_default=False),
    "inat1k_neighbors": NearestImages(dataset="inat1k", num_queries=12, by_default=False),
}
