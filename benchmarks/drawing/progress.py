"""Figures of a metric during pre-training, from snapshots that were evaluated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.drawing.figure import Drawn, Figure, Line, Material, Picture
from benchmarks.drawing.kinds import (
    Kind,
    accuracy_label,
    distinct_runs,
    is_published_run,
    kind_of,
    line_key,
    mean_point,
    newest,
    number_of,
    order_words,
    shares_of_tested,
)
from benchmarks.drawing.panels import LinePanel
from benchmarks.drawing.pictures import (
    Candidate,
    captioned,
    point_words,
    pretrain_and_follow,
    range_words,
    ranked_pictures,
    runs_words,
)
from benchmarks.pages.records import Result, grouped

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
        kinds = grouped(
            (kind_of(result, length=str(result.model.settings.get("epochs", ""))), result)
            for result in material.snapshots
            if result.model.recipe in self.variants.values() and result.task == self.task
        )
        candidates = []
        for kind, own in kinds.items():
            curves = {
                label: curve
                for label, recipe in self.variants.items()
                if (curve := _curve([result for result in own if result.model.recipe == recipe]))
            }
            if curves:
                rank = len(curves), newest(own)
                candidates.append(Candidate(rank, kind, self._picture(kind, curves)))
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
            x_label="epoch of pre-training", y_label=accuracy_label(kind.task), lines=tuple(lines)
        )
        return captioned(
            self,
            [panel],
            {label: [r for own in curve.values() for r in own] for label, curve in curves.items()},
            findings=[*_unfinished(curves), *_order(curves)],
            runs=runs_words(lines),
            header=("series", "epoch", "top1", "standard_deviation", "runs"),
            rows=[(line.label, *point_words(point)) for line in lines for point in line.points],
        )


def _curve(own: Sequence[Result]) -> Curve:
    """Return the snapshots of a variant's longest, then newest line; empty if it has one only.

    A snapshot that has two names counts once.
    """
    runs = grouped((line_key(result, ()), result) for result in own if result.model.epochs)
    curves = [grouped((float(r.model.epochs), r) for r in run) for run in runs.values()]
    best = max(curves, key=lambda curve: (len(curve), max(map(newest, curve.values()))), default={})
    return {x: distinct_runs(best[x]) for x in sorted(best)} if len(best) > 1 else {}


def _order(curves: Mapping[str, Curve]) -> list[str]:
    """Return a sentence on the order of the lines' means over the epochs that all have."""
    common = sorted(set[float].intersection(*(set(curve) for curve in curves.values())))
    if len(curves) < 2 or not common:
        return []
    own = {label: [r for x in common for r in curve[x]] for label, curve in curves.items()}
    words = order_words(shares_of_tested(own, "top1"), own[next(iter(own))][0].task)
    paper = f"the paper's order, from the fastest: {', '.join(own)}"
    return [f"Means over the epochs {range_words(common)}, from the highest: {words}; {paper}."]


def _unfinished(curves: Mapping[str, Curve]) -> list[str]:
    """Return a sentence on lines whose last snapshot is not that of the end of the run."""
    ends = {label: (max(curve), curve[max(curve)][0]) for label, curve in curves.items()}
    parts = [
        f"{label} {epoch:g} of {last.model.settings['epochs']:g}"
        for label, (epoch, last) in ends.items()
        if epoch < float(last.model.settings.get("epochs", 0))
    ]
    return [f"Runs that had not ended, epochs: {', '.join(parts)}."] if parts else []
