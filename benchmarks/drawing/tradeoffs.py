"""Figure of accuracy against another number of the same backbones, a point per setting."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from benchmarks.drawing.figure import Drawn, Figure, Line, LinePanel, Material, Picture
from benchmarks.drawing.kinds import (
    accuracy_label,
    evaluation_sentences,
    mean_point,
    number_of,
    pretraining_sentences,
    runs_sentence,
)
from benchmarks.drawing.pictures import Candidate, captioned, ranked_pictures
from benchmarks.drawing.sweeps import Sweep, SweptLine, level_of, swept_lines
from benchmarks.pages.records import Result

Pair = tuple[float, list[Result], list[Result]]
"""A value of the setting, and the two results of each backbone that has both."""


@dataclass(frozen=True, kw_only=True)
class Tradeoff(Figure):
    """Two sweeps of the same setting against each other."""

    across: Sweep
    """Sweep whose metric is on the x axis."""
    upward: Sweep
    """Sweep whose metric is on the y axis."""
    x_label: str
    symbol: str
    """Setting, as the points' labels show it."""

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each kind of pre-training with at least two such backbones."""
        of_x, of_y = (sweep.by_kind(material).items() for sweep in (self.across, self.upward))
        return ranked_pictures(
            Candidate((exact,), kind, picture)
            for (kind_x, xs), (kind, ys) in product(of_x, of_y)
            if kind_x.pretraining == kind.pretraining
            for exact, picture in self._pictures(xs, ys)
        )

    def needed(self, material: Material) -> Sequence[str]:
        """Return the commands of both sweeps."""
        return list(dict.fromkeys([*self.across.needed(material), *self.upward.needed(material)]))

    def _pictures(self, xs: Sequence[Result], ys: Sequence[Result]) -> list[tuple[bool, Picture]]:
        """Return the picture of one kind, and whether it is the paper's; none of a single point."""
        (swept,) = self.across.lines
        across, upward = (swept_lines(swept, own, self.across.setting)[:1] for own in (xs, ys))
        pairs = _pairs(across, upward)
        if len(pairs) < 2:
            return []
        series = {swept.label: pairs}
        for level in self.across.levels:
            found = [[line] for own in (xs, ys) if (line := level_of(level, own, beside=()))]
            if len(found) == 2 and (both := _pairs(*found)):
                series[level.label] = both[:1]
        exact = all(swept.is_published(result) for _, _, own in pairs for result in own)
        return [(exact, self._picture(series, exact=exact))]

    def _picture(self, series: dict[str, list[Pair]], *, exact: bool) -> Picture:
        first, *_ = series
        lines = [
            Line(
                label=label,
                points=tuple(
                    mean_point(
                        statistics.fmean(number_of(one, self.across.metric) for one in across),
                        [number_of(one, self.upward.metric) for one in upward],
                    )
                    for _, across, upward in pairs
                ),
                point_labels=tuple(
                    f"{value:g}" if label == first else label for value, _, _ in pairs
                ),
            )
            for label, pairs in series.items()
        ]
        models = {
            label: [result.model for _, _, own in pairs for result in own]
            for label, pairs in series.items()
        }
        of_x = series[first][0][1][0]
        of_y = [result for pairs in series.values() for _, _, own in pairs for result in own]
        return captioned(
            self,
            LinePanel(
                x_label=self.x_label, y_label=accuracy_label(of_y[0].task), lines=tuple(lines)
            ),
            [
                f"Numbers beside the points are {self.symbol}.",
                *pretraining_sentences(models, [self.across.setting]),
                *evaluation_sentences(of_y),
                f"Statistics of views: {of_x.task}, protocol {of_x.protocol}.",
                runs_sentence([point for line in lines for point in line.points], of_y),
            ],
            exact=exact,
            header=("series", self.symbol, self.across.metric, self.upward.metric, "runs"),
            rows=[
                (line.label, label, f"{point.x:.4f}", f"{point.y:.4f}", str(point.num_runs))
                for line in lines
                for label, point in zip(line.point_labels, line.points, strict=True)
            ],
        )


def _pairs(across: Sequence[SweptLine], upward: Sequence[SweptLine]) -> list[Pair]:
    """Return the results of the backbones of two lines that have both numbers, by value."""
    pairs = []
    for x_line, y_line in product(across, upward):
        for value, other in product(sorted(x_line.results), sorted(y_line.results)):
            # levels have no value: their only one is not equal to itself
            if value == other or (math.isnan(value) and math.isnan(other)):
                xs, ys = x_line.results[value], y_line.results[other]
                both = {r.model.sha256 for r in xs} & {r.model.sha256 for r in ys}
                of_x, of_y = ([r for r in own if r.model.sha256 in both] for own in (xs, ys))
                pairs += [(value, of_x, of_y)] if both else []
    return pairs
