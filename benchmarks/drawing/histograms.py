"""Figures of how much the views of an image differ: histograms over images, a line per method."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.drawing.figure import Drawn, Figure, Histogram, HistogramPanel, Material, Picture
from benchmarks.drawing.kinds import (
    VIEW_TASKS,
    newest,
    newest_by_label,
    noise_of,
    problem_of,
    ranked,
    spread_over_images,
)
from benchmarks.drawing.pictures import Candidate, captioned, ranked_pictures, stated
from benchmarks.drawing.sweeps import Swept, commands_for
from benchmarks.pages.differences import Sample, Score
from benchmarks.pages.records import Result

SPACES = {"embedding": "the projector's output", "feature": "the backbone's output"}
"""Outputs whose views are compared; the papers show the first."""


@dataclass(frozen=True, kw_only=True)
class Histograms(Figure):
    """One statistic of the views of an image, for several methods."""

    statistic: str
    """Name of the histogram in the records' details."""
    x_label: str
    methods: tuple[Swept, ...]
    lower: tuple[str, str]
    """Labels of two methods, that with the lower mean in the paper first."""

    @property
    def labels(self) -> list[str]:
        """Return the labels of all methods."""
        return [swept.label for swept in self.methods]

    def is_published(self, one: Result) -> bool:
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
            own = {label: found[label] for label in self.labels if label in found}
            if len(own) > 1:
                rank = kind.space == "embedding", len(own), newest(own.values())
                candidates.append(Candidate(rank, kind, self._picture(own)))
        return ranked_pictures(candidates, filter(None, problems.values()))

    def needed(self, material: Material) -> Sequence[str]:
        """Return the commands of the methods without a record of the paper's run."""
        return commands_for(self.methods, [r for r in material.results if r.task in VIEW_TASKS])

    def _histogram(self, result: Result, label: str = "") -> Histogram:
        """Return the histogram in a record; ValueError if it is none, KeyError without any."""
        stored = result.details["histograms"][self.statistic]
        edges, counts = (tuple(map(float, stored[name])) for name in ("edges", "counts"))
        middles = [(low + high) / 2 for low, high in pairwise(edges)]
        mean = sum(m * c for m, c in zip(middles, counts, strict=True)) / sum(counts)
        mean = float(result.details.get(self.statistic, mean))
        if min(counts) < 0 or not math.isfinite(sum(edges) + sum(counts) + mean):
            raise ValueError(f"{self.statistic} has numbers that are negative or not finite")
        return Histogram(label=label, edges=edges, counts=counts, mean=mean)

    def _picture(self, own: Mapping[str, Result]) -> Picture:
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
                *self._order(histograms),
            ],
            header=("series", "from", "to", "images"),
            rows=[
                (each.label, f"{low:.6g}", f"{high:.6g}", f"{count:g}")
                for each in histograms
                for (low, high), count in zip(pairwise(each.edges), each.counts, strict=True)
                if count
            ],
        )

    def _order(self, histograms: Sequence[Histogram]) -> Iterable[str]:
        """Yield sentences on the means and their order, beside what the paper states of it."""
        means = {}
        for each in histograms:
            spread = spread_over_images(each.edges, each.counts)
            error = spread / math.sqrt(sum(each.counts))
            means[each.label] = Score(mean=each.mean, sample=Sample("", stated_error=error))
        yield f"Means from the highest: {ranked(means, '#.3g')}."
        low, high = self.lower
        if not (low in means and high in means):
            yield f"Order: the paper's is {low} below {high}; not both are here."
            return
        difference, noise = means[high].mean - means[low].mean, noise_of(means[low], means[high])
        if abs(difference) <= noise:
            verdict = f"The difference of {low} and {high} is within noise; in the paper, {low} is "
            yield f"{verdict}below (two standard errors over images: {noise:.2g})."
        else:
            start, place = ("As", "below") if difference > 0 else ("Unlike", "above")
            yield (
                f"{start} in the paper, the mean of {low} is {place} that of {high} (difference "
                f"{abs(difference):.2g}, two standard errors over images {noise:.2g})."
            )
        if others := [label for label in means if label not in self.lower]:
            yield f"On {', '.join(others)} the paper's text states nothing."
