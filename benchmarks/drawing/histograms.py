"""Figures of how much the views of an image differ: histograms over images, a line per method."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeGuard

from benchmarks.drawing.figure import (
    Drawn,
    Histogram,
    HistogramPanel,
    Identity,
    Material,
    Picture,
)
from benchmarks.drawing.kinds import (
    VIEW_TASKS,
    Kind,
    evaluation_sentences,
    kind_of,
    pretraining_sentences,
    seed_words,
)
from benchmarks.drawing.order import Measured, noise_of, ranked, spread_over_images
from benchmarks.drawing.pictures import (
    captioned,
    numbered,
    paper_sentences,
    pretrain_and_evaluate,
    stated,
)
from benchmarks.drawing.sweeps import Swept
from benchmarks.pages.records import Result

SPACES = ("embedding", "feature")
"""Outputs of the projector and of the backbone; the papers show the first."""


@dataclass(frozen=True, kw_only=True)
class Histograms(Identity):
    """One statistic of the views of an image, for several methods."""

    statistic: str
    """Name of the histogram in the records' details."""
    x_label: str
    methods: tuple[Swept, ...]
    lower: tuple[str, str]
    """Labels of two methods, that with the lower mean in the paper first."""

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each kind of results with at least two of the methods."""
        kinds: dict[Kind, dict[str, Result]] = {}
        problems = []
        for result in material.results:
            if result.task not in VIEW_TASKS:
                continue
            if problem := self._problem(result):
                problems.append(f"{result.path.name} of {result.model.name}: {problem}")
                continue
            for swept in (swept for swept in self.methods if swept.has(result)):
                own = kinds.setdefault(kind_of(result), {})
                own[swept.label] = max(own.get(swept.label, result), result, key=self._preference)
        found = {kind: own for kind, own in kinds.items() if len(own) > 1}
        order = sorted(found, key=lambda kind: self._rank(kind, found[kind]), reverse=True)
        pictures = [self._picture(found[kind]) for kind in order]
        return Drawn(
            pictures=numbered(self.file_name, pictures, order),
            problems=tuple(dict.fromkeys(problems)),
        )

    def needed(self, material: Material) -> Sequence[str]:
        """Return the commands of the methods without a record of the paper's run."""
        missing: dict[str, list[str]] = {}
        for swept in self.methods:
            of_task = [r for r in material.results if r.task in VIEW_TASKS]
            if not any(swept.is_published(result) for result in of_task):
                missing.setdefault(swept.probe.key, []).extend(swept.recipes)
        return [
            line for key, recipes in missing.items() for line in pretrain_and_evaluate(recipes, key)
        ]

    def _problem(self, result: Result) -> str:
        """Return why a record has no such histogram; empty if it has."""
        histogram = _histogram(result, self.statistic)
        if histogram is None:
            return f"no histogram of {self.statistic} among its details; run the task again"
        edges, counts = histogram.get("edges"), histogram.get("counts")
        if not _are_numbers(edges) or not _are_numbers(counts):
            return (
                f"edges or counts of {self.statistic} are no lists of finite numbers; "
                "run the task again"
            )
        if not _are_numbers([result.details.get(self.statistic, 0)]):
            return f"the mean of {self.statistic} is no finite number; run the task again"
        if len(edges) != len(counts) + 1 or min(counts, default=0) < 0 or not sum(counts):
            return (
                f"a histogram of {len(edges)} edges and {len(counts)} counts; expected an edge "
                "more than counts, and at least one image"
            )
        return ""

    def _preference(self, result: Result) -> tuple[bool, str]:
        published = any(s.has(result) and s.is_published(result) for s in self.methods)
        return published, result.finished

    def _rank(self, kind: Kind, own: Mapping[str, Result]) -> tuple[bool, bool, int, str]:
        return (
            self._exact(own),
            kind.space == SPACES[0],
            len(own),
            max(result.finished for result in own.values()),
        )

    def _exact(self, own: Mapping[str, Result]) -> bool:
        return all(swept.is_published(own[swept.label]) for swept in self._present(own))

    def _present(self, own: Mapping[str, Result]) -> list[Swept]:
        return [swept for swept in self.methods if swept.label in own]

    def _picture(self, own: Mapping[str, Result]) -> Picture:
        labels = [swept.label for swept in self._present(own)]
        histograms = [_drawn(label, own[label], self.statistic) for label in labels]
        rows = [
            (each.label, f"{low:.6g}", f"{high:.6g}", f"{count:g}")
            for each in histograms
            for low, high, count in zip(each.edges, each.edges[1:], each.counts, strict=False)
            if count
        ]
        return captioned(
            self,
            HistogramPanel(x_label=self.x_label, histograms=tuple(histograms)),
            [*self._sentences({label: own[label] for label in labels}, histograms)],
            exact=self._exact(own),
            header=("series", "from", "to", "images"),
            rows=rows,
        )

    def _sentences(
        self, own: Mapping[str, Result], histograms: Sequence[Histogram]
    ) -> Iterable[str]:
        results = [*own.values()]
        first = results[0].details
        space = {"embedding": "the projector's output", "feature": "the backbone's output"}
        counts = sorted({int(sum(each.counts)) for each in histograms})
        yield (
            f"{first.get('num_views', '?')} random views of each of "
            f"{' or '.join(map(str, counts))} images (in the paper "
            f"{stated(self.id, 'augmentations')} of {stated(self.id, 'images'):,}), "
            f"{space.get(first.get('space', ''), '')} at unit length."
        )
        yield from self._order(histograms)
        models = {label: [result.model] for label, result in own.items()}
        yield from pretraining_sentences(models, ())
        yield from paper_sentences(self.id, models)
        yield from evaluation_sentences(results)
        yield f"One run of each, {seed_words(r.seed for r in results)}."
        absent = [swept.label for swept in self.methods if swept.label not in own]
        if absent:
            yield f"Not run: {', '.join(absent)}."

    def _order(self, histograms: Sequence[Histogram]) -> Iterable[str]:
        """Yield sentences on the means and their order, beside what the paper states of it."""
        means = {each.label: Measured(value=each.mean, error=_error(each)) for each in histograms}
        yield f"Means from the highest: {ranked(means, '#.3g')}."
        low, high = self.lower
        if not (low in means and high in means):
            yield f"Order: the paper's is {low} below {high}; not both are here."
            return
        difference, noise = means[high].value - means[low].value, noise_of(means[low], means[high])
        if abs(difference) <= noise:
            verdict = f"The difference of {low} and {high} is within noise; in the paper, {low} is "
            yield f"{verdict}below (two standard errors over images: {noise:.2g})."
        else:
            as_printed = difference > 0
            yield (
                f"{'As' if as_printed else 'Unlike'} in the paper, the mean of {low} is "
                f"{'below' if as_printed else 'above'} that of {high} (difference "
                f"{abs(difference):.2g}, two standard errors over images {noise:.2g})."
            )
        if others := [label for label in means if label not in self.lower]:
            yield f"On {', '.join(others)} the paper's text states nothing."


def _error(histogram: Histogram) -> float:
    """Return the standard error of a histogram's mean over its images."""
    spread = spread_over_images(histogram.edges, histogram.counts)
    return spread / math.sqrt(sum(histogram.counts))


def _histogram(result: Result, statistic: str) -> Mapping[str, Any] | None:
    histograms = result.details.get("histograms")
    found = histograms.get(statistic) if isinstance(histograms, Mapping) else None
    return found if isinstance(found, Mapping) else None


def _are_numbers(values: object) -> TypeGuard[list[float]]:
    return isinstance(values, list) and all(
        isinstance(value, int | float) and math.isfinite(value) for value in values
    )


def _drawn(label: str, result: Result, statistic: str) -> Histogram:
    histogram = _histogram(result, statistic) or {}
    edges, counts = histogram["edges"], histogram["counts"]
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    mean = sum(m * c for m, c in zip(middles, counts, strict=True)) / sum(counts)
    return Histogram(
        label=label,
        edges=tuple(edges),
        counts=tuple(counts),
        mean=float(result.details.get(statistic, mean)),
    )
