"""Nearest training images of some test images: LooC, figure 3.

Xiao et al., ICLR 2021, arXiv:2008.05659. The paper does not state number, distance or gallery:
we show the eight nearest training images by cosine similarity of features. All backbones have the
same queries, so that their figures can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar, Never

from transfer.datasets.folders import Folders
from transfer.datasets.images import describe_image
from transfer.frozen.feature_cache import TrainAndTest, open_images
from transfer.outcomes import per_image
from transfer.tasks.task import CenterCrops, too_few_neighbors

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Neighbors:
    """Nearest training images of every test image, and queries to show."""

    labels: Tensor
    """(n,) of the test images."""
    same: Tensor
    """Whether each neighbor has the query's class (n, k), nearest first."""
    queries: list[dict[str, Any]] = field(default_factory=list)
    """Queries to show with their neighbors, for the record."""


@dataclass(frozen=True, kw_only=True)
class NearestImages(CenterCrops):
    """Nearest training images, and how many share the query's class."""

    heading: ClassVar[str] = "Figures"
    seeded: ClassVar[bool] = False
    primary_metric: ClassVar[str] = "same_class"

    protocol: str = "looc-2020/1"
    num_neighbors: int = 8
    """k, number of neighbors."""
    num_queries: int = 20
    """Number of test images in the record, spread over classes."""
    query_draw: int = 0
    """Seed that draws the queries, equal for all runs."""

    def too_few(self, num_images: int, num_classes: int) -> str:
        """Return why there are fewer training images than neighbors; empty if enough."""
        return too_few_neighbors(self.num_neighbors, num_images, self.dataset, has_smoke=False)

    def run(self, prepared: TrainAndTest, folders: Folders, seed: int) -> Neighbors:
        """Return the neighbors; the seed has no effect, since nothing is drawn."""
        from transfer.frozen.nearest import nearest_rows

        train, test = prepared.train, prepared.test
        similarities, nearest = nearest_rows(train.features, test.features, self.num_neighbors)
        bank, tested = (open_images(self.dataset, s, folders) for s in ("trainval", "test"))

        def neighbors(query: int) -> list[dict[str, Any]]:
            rows = zip(nearest[query].tolist(), similarities[query].tolist(), strict=True)
            return [describe_image(bank, i) | {"cosine": round(cosine, 6)} for i, cosine in rows]

        queries = [
            describe_image(tested, query) | {"neighbors": neighbors(query)}
            for query in self.draw_queries(test.labels)
        ]
        return Neighbors(test.labels, train.labels[nearest] == test.labels[:, None], queries)

    def draw_queries(self, labels: Tensor) -> list[int]:
        """Return indices of random test images, from as many classes as possible."""
        import torch

        generator = torch.Generator().manual_seed(self.query_draw)
        order = torch.randperm(len(labels), generator=generator)
        classes = labels.unique()
        classes = classes[torch.randperm(len(classes), generator=generator)].tolist()
        by_class = {label: order[labels[order] == label].tolist() for label in classes}
        rounds = zip_longest(*by_class.values())
        alternating = [image for images in rounds for image in images if image is not None]
        queries = alternating[: self.num_queries]
        return sorted(queries, key=lambda index: (int(labels[index]), index))

    def metrics(self, predictions: Neighbors) -> dict[str, float]:
        """Return the percentage of neighbors that share the query's class."""
        return {"same_class": 100 * float(predictions.same.double().mean())}

    def details(self, predictions: Neighbors) -> dict[str, object]:
        """Return the queries, the number of test images, and per-image results.

        A per-image result is the number of neighbors that share the query's class.
        """
        labels, same = predictions.labels.numpy(), predictions.same
        results = per_image(same.sum(dim=1).numpy(), labels, num_predictions=same.shape[1])
        return {"queries": predictions.queries, "num_test": len(predictions.labels), **results}

    def gallery(self, predictions: Neighbors, folders: Folders) -> list[Never]:
        """Return nothing: the record shows the queries."""
        return []


TASKS = {
    "cifar10_neighbors": NearestImages(
        dataset="cifar10", crop_px=32, margin_px=0, by_default=False
    ),
    # thumbnails of natural images are larger
    "in100_neighbors": NearestImages(dataset="in100", num_queries=12, by_default=False),
    "inat1k_neighbors": NearestImages(dataset="inat1k", num_queries=12, by_default=False),
}
