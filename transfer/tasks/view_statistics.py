"""Statistics of random views of an image.

JCL, figure 3; LORAC, figures 3 b, 3 c and 4 c.

32 random views of each image pass through the backbone and its projector. For each image, the
record's histograms count the mean cosine similarity of all pairs of views, the mean variance per
dimension, and the nuclear norm of the embedding matrix. Neither paper states the augmentation or
the layer: we use MoCo v2's augmentation for all methods, and unit-length embeddings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Never

from transfer.datasets.folders import Folders
from transfer.encoders.encoder import Encoder
from transfer.finetuning.options import length_fraction
from transfer.frozen.feature_cache import open_images
from transfer.frozen.transforms import ViewSettings
from transfer.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor

    from transfer.datasets.images import Images
    from transfer.encoders.projector import Projector

Space = Literal["embedding", "feature"]

NUM_BINS = 200
"""Bins of each histogram; they cover all possible values of its statistic."""


@dataclass(frozen=True)
class ImageStatistics:
    """The statistics of every image, in the order of `view_statistics`."""

    by_space: dict[str, Tensor]
    """(n, 3) for "feature" and, with a projector, "embedding"."""
    dims: dict[str, int]
    """Dimension d of each space."""


@dataclass(frozen=True, kw_only=True)
class ViewStatistics(Task):
    """Statistics of random views in one space, averaged over images."""

    heading: ClassVar[str] = "Figures"
    primary_metric: ClassVar[str] = "mean_cosine"
    supported_options: ClassVar[frozenset[str]] = frozenset({"features_in"})

    protocol: str = "lorac-2021/1"
    space: Space = "embedding"
    """Output of the projector (embedding) or of the backbone (feature)."""
    split: Literal["test", "trainval"] = "test"
    num_images: int = 5000
    """Number of images drawn from the split; all if it has fewer."""
    views: ViewSettings = field(default_factory=ViewSettings)
    engine: Literal["torch"] = "torch"

    def at_schedule(self, schedule: str) -> ViewStatistics:
        """Return the protocol on fewer images."""
        num_images = round(self.num_images * length_fraction(schedule))
        return replace(self, num_images=max(20, num_images))

    def for_backbone(self, backbone: Encoder) -> ViewStatistics:
        """Return the protocol with the backbone's image size."""
        return replace(self, views=replace(self.views, size_px=backbone.input.size_px))

    def unsupported_reason(self, backbone: Encoder) -> str:
        """Return why a backbone has no projector, if the task needs one."""
        from transfer.encoders.projector import missing_projector_reason

        return missing_projector_reason(backbone) if self.space == "embedding" else ""

    def units(self) -> dict[str, float]:
        """Return the number of views."""
        return {"forward": self.num_images * self.views.num_views}

    def prepare(
        self, backbone: Encoder, folders: Folders
    ) -> tuple[Encoder, Projector | None, Images]:
        """Return the images, and the projector if the task needs it."""
        from transfer.encoders.projector import load_projector

        projector = load_projector(backbone) if self.space == "embedding" else None
        return backbone, projector, open_images(self.dataset, self.split, folders)

    def run(
        self, prepared: tuple[Encoder, Projector | None, Images], folders: Folders, seed: int
    ) -> ImageStatistics:
        """Return statistics of random images; the seed draws images and views."""
        import torch

        from transfer.frozen.network import device
        from transfer.frozen.random_views import statistics_of_views

        backbone, projector, images = prepared
        generator = torch.Generator().manual_seed(seed)
        indices = torch.randperm(len(images), generator=generator)[: self.num_images]
        projector = projector and projector.to(device())
        statistics = statistics_of_views(
            backbone, projector, images, sorted(indices.tolist()), self.views, seed
        )
        dims = {"feature": backbone.feature_dim}
        if projector is not None:
            dims["embedding"] = projector.embedding_dim
        return ImageStatistics(statistics, dims)

    def metrics(self, predictions: ImageStatistics) -> dict[str, float]:
        """Return the mean cosine similarity in percent (100: identical views)."""
        return {"mean_cosine": 100 * float(predictions.by_space[self.space][:, 0].mean())}

    def gallery(self, predictions: ImageStatistics, folders: Folders) -> list[Never]:
        """Return nothing: the record contains histograms instead."""
        return []

    def details(self, predictions: ImageStatistics) -> dict[str, object]:
        """Return means and histograms of the raw statistics.

        A task on embeddings also returns the statistics of features, under "of_features".
        """
        details = self.space_details(predictions, self.space)
        if self.space == "embedding":
            details["of_features"] = self.space_details(predictions, "feature")
        num_images = len(predictions.by_space[self.space])
        return {"num_views": self.views.num_views, "num_images": num_images, **details}

    def space_details(self, predictions: ImageStatistics, space: Space) -> dict[str, object]:
        """Return dimension, means over images, and histograms for one space."""
        from transfer.frozen.random_views import STATISTICS

        dim, views = predictions.dims[space], self.views.num_views
        # the largest nuclear norm of V unit rows: at most d of them are orthogonal
        max_norm = math.sqrt(views * min(views, dim))
        # the mean cosine is the squared length of the mean row, so it is never negative
        ranges = ((0.0, 1.0), (0.0, 1.0 / dim), (math.sqrt(views), max_norm))
        means, histograms = {}, {}
        for name, values, limits in zip(
            STATISTICS, predictions.by_space[space].T, ranges, strict=True
        ):
            means[name] = float(values.mean())
            histograms[name] = histogram(values, *limits)
        return {"space": space, "dim": dim, **means, "histograms": histograms}


def histogram(values: Tensor, low: float, high: float) -> dict[str, list[float]]:
    """Return edges (NUM_BINS + 1) and counts of equal bins.

    Values outside the range, due to rounding, are counted in the outermost bins.
    """
    import torch

    edges = torch.linspace(low, high, NUM_BINS + 1, dtype=torch.float64)
    counts, _ = torch.histogram(values.double().clamp(low, high), edges)
    return {"edges": edges.tolist(), "counts": [int(count) for count in counts]}


CIFAR_VIEWS = ViewSettings(size_px=32, blur_probability=0.0)
"""Views of small images, without blur."""

TASKS = {
    "cifar10_view_statistics": ViewStatistics(
        dataset="cifar10", views=CIFAR_VIEWS, by_default=False
    ),
    "cifar10_view_statistics@feature": ViewStatistics(
        dataset="cifar10",
        protocol="lorac-2021-feature/1",
        space="feature",
        views=CIFAR_VIEWS,
        by_default=False,
    ),
    "in100_view_statistics": ViewStatistics(dataset="in100", by_default=False),
    # 32,768 images are more than the validation set has
    "in100_view_statistics@jcl": ViewStatistics(
        dataset="in100",
        protocol="jcl-2020/1",
        split="trainval",
        num_images=32_768,
        by_default=False,
    ),
    "in100_view_statistics@feature": ViewStatistics(
        dataset="in100", protocol="lorac-2021-feature/1", space="feature", by_default=False
    ),
}
