"""Figure of accuracy against another number of the same backbones, a point per setting."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.drawing.figure import Drawn, Identity, Line, LinePanel, Material, Picture
from benchmarks.drawing.kinds import (
    Kind,
    accuracy_label,
    evaluation_sentences,
    mean_point,
    number_of,
    pretraining_sentences,
    runs_sentence,
)
from benchmarks.drawing.pictures import captioned, numbered
from benchmarks.drawing.sweeps import Sweep, SweptLine, swept_lines
from benchmarks.pages.records import Result


@dataclass(frozen=True)
class Pair:
    """Results of the backbones with one value of the setting."""

    value: float
    across: tuple[Result, ...]
    upward: tuple[Result, ...]


@dataclass(frozen=True, kw_only=True)
class Tradeoff(Identity):
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
        found: list[tuple[Kind, Picture]] = []
        for kind_x, of_x in self.across.by_kind(material).items():
            for kind_y, of_y in self.upward.by_kind(material).items():
                if kind_x.pretraining == kind_y.pretraining:
                    found += self._pictures((kind_x, of_x), (kind_y, of_y), material)
        found.sort(key=lambda pair: "Not the" in pair[1].caption[1])
        pictures = [picture for _, picture in found]
        return Drawn(pictures=numbered(self.file_name, pictures, [kind for kind, _ in found]))

    def needed(self, material: Material) -> Sequence[str]:
        """Return the commands of both sweeps."""
        return list(dict.fromkeys([*self.across.needed(material), *self.upward.needed(material)]))

    def _pictures(
        self, x: tuple[Kind, Sequence[Result]], y: tuple[Kind, Sequence[Result]], material: Material
    ) -> list[tuple[Kind, Picture]]:
        (swept,) = self.across.lines
        setting = self.across.setting
        (_, of_x), (kind_y, of_y) = x, y
        found = []
        for across in swept_lines(swept, of_x, setting)[:1]:
            for upward in swept_lines(swept, of_y, setting)[:1]:
                pairs = _pairs(across, upward)
                if len(pairs) > 1:
                    levels = self._levels(x, y, material)
                    found.append((kind_y, self._picture(pairs, levels)))
        return found

    def _levels(
        self, x: tuple[Kind, Sequence[Result]], y: tuple[Kind, Sequence[Result]], material: Material
    ) -> dict[str, Pair]:
        """Return what stands for other methods, of the backbones with both numbers."""
        levels = {}
        for swept in self.across.levels:
            across = self.across.level(swept, x[0], material, published=False)
            upward = self.upward.level(swept, y[0], material, published=False)
            if across and upward and (pairs := _pairs(across, upward)):
                levels[swept.label] = pairs[0]
        return levels

    def _picture(self, pairs: Sequence[Pair], levels: Mapping[str, Pair]) -> Picture:
        (swept,) = self.across.lines
        everything = [*pairs, *levels.values()]
        of_x = [result for pair in everything for result in pair.across]
        of_y = [result for pair in everything for result in pair.upward]
        exact = all(map(swept.is_published, (r for pair in pairs for r in pair.upward)))
        lines = [self._line(swept.label, pairs, [f"{pair.value:g}" for pair in pairs])]
        lines += [self._line(label, [pair], [label]) for label, pair in levels.items()]
        models = {swept.label: [r.model for pair in pairs for r in pair.upward]}
        models |= {label: [r.model for r in pair.upward] for label, pair in levels.items()}
        panel = LinePanel(
            x_label=self.x_label,
            y_label=accuracy_label(of_y[0].task),
            lines=tuple(lines),
        )
        return captioned(
            self,
            panel,
            [
                f"Numbers beside the points are {self.symbol}.",
                *pretraining_sentences(models, [self.across.setting]),
                *evaluation_sentences(of_y),
                f"Statistics of views: {of_x[0].task}, protocol {of_x[0].protocol}.",
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

    def _line(self, label: str, pairs: Sequence[Pair], point_labels: Sequence[str]) -> Line:
        points = [
            mean_point(
                statistics.fmean(number_of(r, self.across.metric) for r in pair.across),
                [number_of(r, self.upward.metric) for r in pair.upward],
            )
            for pair in pairs
        ]
        return Line(label=label, points=tuple(points), point_labels=tuple(point_labels))


def _pairs(across: SweptLine, upward: SweptLine) -> list[Pair]:
    """Return the results of the backbones that have both numbers, by the setting's value."""
    # levels have no value: their only one is not equal to itself
    of_x, of_y = sorted(across.results.items()), sorted(upward.results.items())
    pairs = []
    for value, x_results in of_x:
        for other, y_results in of_y:
            if value == other or (math.isnan(value) and math.isnan(other)):
                both = {r.model.sha256 for r in x_results} & {r.model.sha256 for r in y_results}
                xs = tuple(r for r in x_results if r.model.sha256 in both)
                ys = tuple(r for r in y_results if r.model.sha256 in both)
                pairs += [Pair(value, xs, ys)] if both else []
    return pairs
