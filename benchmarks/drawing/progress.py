"""Figures of a metric during pre-training, from snapshots that were evaluated."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.drawing.figure import Drawn, Figure, Material, Picture
from benchmarks.drawing.kinds import (
    Kind,
    Points,
    accuracy_label,
    best_points,
    is_published_run,
    kind_of,
    mean_line,
    members,
    newest,
    order_words,
    shares_of_tested,
)
from benchmarks.drawing.panels import LinePanel
from benchmarks.drawing.pictures import (
    best_picture,
    captioned,
    point_words,
    range_words,
)
from benchmarks.results.records import Run, grouped


@dataclass(frozen=True, kw_only=True)
class SnapshotCurves(Figure):
    """Accuracy of snapshots over the epochs of pre-training, a line per variant."""

    task: str
    """Task of a single protocol."""
    variants: Mapping[str, str]
    """Recipe by the line's label, from what the paper finds fastest to slowest."""

    def is_published(self, one: Run) -> bool:
        """Return whether a result is one of the paper's."""
        return is_published_run(one, self.variants.values(), self.task)

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each kind of runs with at least two evaluated snapshots."""
        kinds = grouped(
            (kind_of(result, length=str(result.settings.get("epochs", ""))), result)
            for result in material.snapshots
            if result.recipe in self.variants.values() and result.task == self.task
        )
        candidates = []
        for kind, own in kinds.items():
            curves = {
                label: curve
                for label, recipe in self.variants.items()
                if (curve := self._curve(r for r in own if r.recipe == recipe))
            }
            if curves:
                rank = len(curves), newest(own)
                candidates.append((rank, self._picture(kind, curves)))
        return best_picture(candidates)

    def needed(self, material: Material) -> Sequence[str]:
        """Return the recipes of the variants without a snapshot of the paper's run."""
        of_task = [result for result in material.snapshots if result.task == self.task]
        there = {result.recipe for result in of_task if self.is_published(result)}
        recipes = [recipe for recipe in self.variants.values() if recipe not in there]
        return [f"{recipe}: {self.task} of its snapshots" for recipe in recipes]

    def _curve(self, own: Iterable[Run]) -> Points:
        """Return the snapshots of a variant's line by epoch; empty if it has one only."""
        found = [(float(r.epochs), r) for r in own if r.epochs]
        return best_points(found, (), self.is_published, 2)

    def _picture(self, kind: Kind, curves: Mapping[str, Points]) -> Picture:
        lines = [mean_line(label, curve, "top1") for label, curve in curves.items()]
        panel = LinePanel(
            x_label="epoch of pre-training", y_label=accuracy_label(kind.task), lines=tuple(lines)
        )
        return captioned(
            self,
            [panel],
            {label: members(curve) for label, curve in curves.items()},
            findings=[*_unfinished(curves), *_order(curves)],
            shown=self.variants,
            header=("series", "epoch", "top1", "standard_deviation", "runs"),
            rows=[(line.label, *point_words(point)) for line in lines for point in line.points],
        )


def _order(curves: Mapping[str, Points]) -> list[str]:
    """Return a sentence on the order of the lines' means over the epochs that all have."""
    common = sorted(set[float].intersection(*(set(curve) for curve in curves.values())))
    if len(curves) < 2 or not common:
        return []
    own = {label: [r for x in common for r in curve[x]] for label, curve in curves.items()}
    words = order_words(shares_of_tested(own, "top1"), own[next(iter(own))][0].task)
    paper = f"the paper's order, from the fastest: {', '.join(own)}"
    return [f"Means over the epochs {range_words(common)}, from the highest: {words}; {paper}."]


def _unfinished(curves: Mapping[str, Points]) -> list[str]:
    """Return a sentence on lines whose last snapshot is not that of the end of the run."""
    ends = {label: (max(curve), curve[max(curve)][0]) for label, curve in curves.items()}
    parts = [
        f"{label} {epoch:g} of {last.settings['epochs']:g}"
        for label, (epoch, last) in ends.items()
        if epoch < float(last.settings.get("epochs", 0))
    ]
    return [f"Runs that had not ended, epochs: {', '.join(parts)}."] if parts else []
