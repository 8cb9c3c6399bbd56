"""Figures of a metric during pre-training, from snapshots that were evaluated."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.drawing.figure import Drawn, Figure, Line, LinePanel, Material, Picture
from benchmarks.drawing.kinds import (
    Kind,
    accuracy_label,
    distinct_runs,
    error_of,
    is_published_run,
    kind_of,
    largest_noise,
    line_key,
    mean_point,
    newest,
    num_test_images,
    number_of,
    order_words,
    ranked,
    share_of_tested,
)
from benchmarks.drawing.pictures import (
    Candidate,
    captioned,
    point_words,
    pretrain_and_follow,
    range_words,
    ranked_pictures,
    runs_words,
)
from benchmarks.pages.records import Result

MOST_MARKED = 30
"""Most points of a line whose points have markers."""

Curve = dict[float, tuple[Result, ...]]
"""Results of a variant's snapshots by epoch."""


@dataclass(frozen=True, kw_only=True)
class SnapshotCurves(Figure):
    """Accuracy of snapshots over the epochs of pre-training, a line per variant."""

    task: str
    protocol: str
    """Protocol of the paper, without version."""
    variants: Mapping[str, str]
    """Recipe by the line's label, from what the paper finds fastest to slowest."""

    @property
    def labels(self) -> list[str]:
        """Return the labels of all variants."""
        return list(self.variants)

    def is_published(self, one: Result) -> bool:
        """Return whether a result is one of the paper's."""
        return is_published_run(one, self.variants.values(), self.protocol)

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each kind of runs with at least two evaluated snapshots."""
        kinds: dict[Kind, dict[str, list[Result]]] = {}
        for result in material.snapshots:
            recipe = result.model.recipe
            if recipe in self.variants.values() and result.task == self.task:
                length = str(result.model.settings.get("epochs", ""))
                kind = kind_of(result, length=length)
                kinds.setdefault(kind, {}).setdefault(recipe, []).append(result)
        candidates = []
        for kind, own in kinds.items():
            curves = {label: _curve(own.get(recipe, ())) for label, recipe in self.variants.items()}
            lines = {label: curve for label, curve in curves.items() if curve}
            if lines:
                rank = len(lines), max(newest(r) for c in lines.values() for r in c.values())
                candidates.append(Candidate(rank, kind, self._picture(kind, lines)))
        return ranked_pictures(candidates)

    def needed(self, material: Material) -> Sequence[str]:
        """Return the commands of the variants without a snapshot of the paper's run."""
        of_task = [result for result in material.snapshots if result.task == self.task]
        there = {result.model.recipe for result in of_task if self.is_published(result)}
        recipes = [recipe for recipe in self.variants.values() if recipe not in there]
        return pretrain_and_follow(recipes, self.task) if recipes else []

    def _picture(self, kind: Kind, curves: Mapping[str, Curve]) -> Picture:
        lines = []
        for label, curve in curves.items():
            means = [mean_point(x, [number_of(r, "top1") for r in own]) for x, own in curve.items()]
            lines.append(Line(label=label, points=tuple(means)))
        panel = LinePanel(
            x_label="epoch of pre-training",
            y_label=accuracy_label(kind.task),
            lines=tuple(lines),
            marked=max(len(line.points) for line in lines) <= MOST_MARKED,
        )
        return captioned(
            self,
            [panel],
            {label: [r for own in curve.values() for r in own] for label, curve in curves.items()},
            after=[*_unfinished(curves), *_order(lines, curves)],
            runs=runs_words(lines),
            header=("series", "epoch", "top1", "standard_deviation", "runs"),
            rows=[(line.label, *point_words(point)) for line in lines for point in line.points],
        )


def _curve(own: Sequence[Result]) -> Curve:
    """Return the snapshots of a variant's longest, then newest line; empty if it has one only.

    A snapshot that has two names counts once.
    """
    runs: dict[tuple[str, ...], dict[float, list[Result]]] = {}
    for result in own:
        if result.model.epochs:
            epochs = runs.setdefault(line_key(result, ()), {})
            epochs.setdefault(float(result.model.epochs), []).append(result)
    best = max(
        runs.values(), key=lambda run: (len(run), max(map(newest, run.values()))), default={}
    )
    return {x: distinct_runs(best[x]) for x in sorted(best)} if len(best) > 1 else {}


def _order(lines: Sequence[Line], curves: Mapping[str, Curve]) -> Iterator[str]:
    """Yield sentences on the order of the lines' means over the epochs that all have."""
    common = sorted(set.intersection(*({point.x for point in line.points} for line in lines)))
    if len(lines) < 2 or not common:
        return
    counts = {
        num_test_images(r) for curve in curves.values() for own in curve.values() for r in own
    }
    means = {
        line.label: share_of_tested(
            statistics.fmean(point.y for point in line.points if point.x in common),
            [result for x in common for result in curves[line.label][x]],
            "top1",
        )
        for line in lines
    }
    yield (
        f"Means over the epochs {range_words(common)}, from the highest: "
        f"{ranked(means, '.1f')}. The paper's order, from the fastest: {', '.join(means)}."
    )
    yield f"Order: {order_words(means)}."
    if len(counts) == 1 and (number := counts.pop()):
        own = 2 * max(map(error_of, means.values()))
        yield (
            f"Two standard errors at {number:,} test images are {own:.1f} points, "
            f"{largest_noise(means):.1f} of a difference."
        )


def _unfinished(curves: Mapping[str, Curve]) -> list[str]:
    """Return a sentence on lines whose last snapshot is not that of the end of the run."""
    ends = {label: (max(curve), curve[max(curve)][0]) for label, curve in curves.items()}
    parts = [
        f"{label} {epoch:g} of {last.model.settings['epochs']:g}"
        for label, (epoch, last) in ends.items()
        if epoch < float(last.model.settings.get("epochs", 0))
    ]
    return [f"Runs that had not ended, epochs: {', '.join(parts)}."] if parts else []
