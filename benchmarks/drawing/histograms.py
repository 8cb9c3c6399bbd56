"""Figures of how much the views of an image differ: histograms over images, a line per method."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from benchmarks.drawing.figure import Drawn, Figure, Material, Panel, Picture
from benchmarks.drawing.kinds import VIEW_TASKS, newest, newest_by_label, problem_of
from benchmarks.drawing.panels import color_of
from benchmarks.drawing.pictures import best_picture, captioned, stated
from benchmarks.drawing.sweeps import Swept, missing_recipes
from benchmarks.results.records import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPACES = {"embedding": "the projector's output", "feature": "the backbone's output"}
"""Outputs whose views are compared; the papers show the first."""
MOST_BINS = 48
"""Bins of a histogram that are drawn; records hold more."""


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Counts of images between edges."""

    label: str
    edges: tuple[float, ...]
    """Edges of the bins, one more than counts."""
    counts: tuple[float, ...]
    mean: float

    @property
    def middles(self) -> list[float]:
        """Middle of each bin."""
        return [(low + high) / 2 for low, high in pairwise(self.edges)]

    @property
    def error(self) -> float:
        """Standard error of the mean over the images."""
        total = sum(self.counts)
        bins = list(zip(self.middles, self.counts, strict=True))
        center = sum(middle * count for middle, count in bins) / total
        squares = sum(count * (middle - center) ** 2 for middle, count in bins)
        return math.sqrt(squares / max(total - 1, 1) / total)


@dataclass(frozen=True, kw_only=True)
class HistogramPanel(Panel):
    """Histograms over a common x axis, each as a share of its images."""

    x_label: str
    histograms: tuple[Histogram, ...]

    def draw(self, axes: "Axes") -> None:
        """Draw each histogram in percent of its images, and its mean as a dotted line."""
        bins = self.bins()
        for place, each in enumerate(self.histograms):
            color, total = color_of(place), sum(each.counts)
            axes.hist(
                each.middles,
                bins=bins,
                weights=[100 * count / total for count in each.counts],
                histtype="stepfilled",
                facecolor=(color, 0.15),
                edgecolor=color,
                label=each.label,
            )
            axes.axvline(each.mean, color=color, linewidth=0.8, linestyle=":")
        axes.set_xlabel(self.x_label)
        axes.set_ylabel("images (%)")
        axes.legend(frameon=False)

    def bins(self) -> list[float]:
        """Return edges over the range with images, so many joined that MOST_BINS bins are left."""
        edges = self.histograms[0].edges
        counts = zip(*(each.counts for each in self.histograms), strict=True)
        used = [place for place, count in enumerate(counts) if any(count)]
        joined = -(-(used[-1] + 1 - used[0]) // MOST_BINS)
        bins = list(edges[used[0] : used[-1] + 1 : joined])
        return [*bins, edges[min(used[0] + joined * len(bins), len(edges) - 1)]]


@dataclass(frozen=True, kw_only=True)
class Histograms(Figure):
    """One statistic of the views of an image, for several methods."""

    statistic: str
    """Name of the histogram in the records' details."""
    x_label: str
    methods: tuple[Swept, ...]
    lower: tuple[str, str]
    """Labels of two methods, that with the lower mean in the paper first."""

    def is_published(self, one: Run) -> bool:
        """Return whether a result is one of the paper's."""
        return any(swept.has(one) and swept.is_published(one) for swept in self.methods)

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each kind of results with at least two of the methods."""
        results = [result for result in material.results if result.task in VIEW_TASKS]
        problems = {result.path: problem_of(result, self._histogram) for result in results}
        kinds = newest_by_label(
            [result for result in results if not problems[result.path]],
            lambda result: [swept.label for swept in self.methods if swept.has(result)],
            self.is_published,
        )
        candidates = []
        for kind, found in kinds.items():
            own = {s.label: found[s.label] for s in self.methods if s.label in found}
            if len(own) > 1:
                rank = kind.space == "embedding", len(own), newest(own.values())
                candidates.append((rank, self._picture(own)))
        return best_picture(candidates, problems.values())

    def needed(self, material: Material) -> Sequence[str]:
        """Return the recipes of the methods without a record of the paper's run."""
        return missing_recipes(self.methods, [r for r in material.results if r.task in VIEW_TASKS])

    def _histogram(self, result: Run, label: str = "") -> Histogram:
        """Return the histogram in a record; ValueError if it is none, KeyError without any."""
        stored = result.details["histograms"][self.statistic]
        edges, counts = (tuple(map(float, stored[name])) for name in ("edges", "counts"))
        found = Histogram(label=label, edges=edges, counts=counts, mean=math.nan)
        mean = sum(m * c for m, c in zip(found.middles, counts, strict=True)) / sum(counts)
        mean = float(result.details.get(self.statistic, mean))
        if min(counts) < 0 or not math.isfinite(sum(edges) + sum(counts) + mean):
            raise ValueError(f"{self.statistic} has numbers that are negative or not finite")
        return Histogram(label=label, edges=edges, counts=counts, mean=mean)

    def _picture(self, own: Mapping[str, Run]) -> Picture:
        histograms = [self._histogram(result, label) for label, result in own.items()]
        first = next(iter(own.values())).details
        counts = sorted({int(sum(each.counts)) for each in histograms})
        return captioned(
            self,
            [HistogramPanel(x_label=self.x_label, histograms=tuple(histograms))],
            {label: [result] for label, result in own.items()},
            findings=[
                f"{first.get('num_views', '?')} random views of each of "
                f"{' or '.join(map(str, counts))} images (in the paper "
                f"{stated(self.id, 'augmentations')} of {stated(self.id, 'images'):,}), "
                f"{SPACES.get(first.get('space', ''), '')} at unit length.",
                *self._means(histograms),
            ],
            shown=[swept.label for swept in self.methods],
            header=("series", "from", "to", "images"),
            rows=[
                (each.label, f"{low:.6g}", f"{high:.6g}", f"{count:g}")
                for each in histograms
                for (low, high), count in zip(pairwise(each.edges), each.counts, strict=True)
                if count
            ],
        )

    def _means(self, histograms: Sequence[Histogram]) -> Iterable[str]:
        """Yield sentences on the means, their errors, and the order that the paper states."""
        ordered = sorted(histograms, key=lambda each: -each.mean)
        means = (f"{each.label} {each.mean:#.3g} ± {2 * each.error:.2g}" for each in ordered)
        yield f"Means ± two standard errors over images: {', '.join(means)}."
        yield f"In the paper, {self.lower[0]} is below {self.lower[1]}."
