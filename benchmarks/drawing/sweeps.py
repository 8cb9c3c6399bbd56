"""Figures of a metric against a setting of pre-training: one line per method, one point per value.

Runs of one line differ in nothing else. They may be the published recipes, or any others of the
same method, such as small ones on CIFAR-10. A tradeoff has two sweeps of one setting as axes.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from benchmarks.drawing.figure import Drawn, Figure, Line, Material, Picture
from benchmarks.drawing.kinds import (
    Kind,
    Points,
    accuracy_label,
    best_points,
    has_number,
    is_published_run,
    kind_of,
    mean_line,
    mean_point,
    members,
    newest,
    number_of,
)
from benchmarks.drawing.panels import LinePanel, PublishedPoint
from benchmarks.drawing.pictures import (
    best_picture,
    captioned,
    point_words,
)
from benchmarks.results.records import Run, grouped

ACCURACY_TASKS = tuple(
    f"{dataset}_{task}"
    for dataset in ("in100", "cifar10", "cifar100")
    for task in ("linear", "knn")
)
LEVEL = ""
"""Setting of runs that have no value on the x axis; their points have NaN."""


@dataclass(frozen=True, kw_only=True)
class Swept:
    """One line of a sweep: a method, and the value of the setting in each published recipe."""

    label: str
    method: str
    recipes: Mapping[str, float]
    """Value of x by recipe; of a level, which has no x, any."""
    where: Mapping[str, Any] = field(default_factory=dict)
    """Settings that tell it from other runs of the method."""
    follows: tuple[str, ...] = ()
    """Settings that follow from the swept one."""
    shared: tuple[str, ...] = ()
    """Settings that a level has in common with the lines beside it."""
    key: str
    """Key in TASKS of the evaluation that gives the paper's number."""

    def has(self, result: Run) -> bool:
        """Return whether a result belongs to a line of this kind."""
        if result.method != self.method:
            return False
        if not result.settings:
            return result.recipe in self.recipes
        return all(result.settings.get(name) == value for name, value in self.where.items())

    def is_published(self, result: Run) -> bool:
        """Return whether a result is one of the paper's."""
        return is_published_run(result, self.recipes, self.key)

    def value(self, result: Run, setting: str) -> float | None:
        """Return the value of the setting in a backbone's pre-training; None if it is not known."""
        if setting == LEVEL:
            return math.nan
        value = result.settings.get(setting)
        if isinstance(value, int | float):
            return float(value)
        return None if result.settings else self.recipes.get(result.recipe)

    def points(self, results: Iterable[Run], setting: str) -> Points:
        """Return the runs of one line; empty with fewer than two values, of a level with none."""
        found = [(self.value(result, setting), result) for result in results if self.has(result)]
        known = [(x, result) for x, result in found if x is not None]
        least = 1 if setting == LEVEL else 2
        return best_points(known, [setting, *self.follows], self.is_published, least)


@dataclass(frozen=True, kw_only=True)
class Sweep(Figure):
    """A metric against one setting of pre-training."""

    setting: str
    """Name of the setting, such as config.num_keys."""
    symbol: str
    """Label of the x axis."""
    lines: tuple[Swept, ...]
    levels: tuple[Swept, ...] = ()
    """Runs that have no value of the setting."""
    published: tuple[PublishedPoint, ...] = ()
    log_x: bool = False
    tasks: tuple[str, ...] = ACCURACY_TASKS
    metric: str = "top1"
    y_label: str = ""
    """Label of the y axis; empty for the accuracy of the task."""

    def is_published(self, one: Run) -> bool:
        """Return whether a result is one of the paper's."""
        return any(s.has(one) and s.is_published(one) for s in (*self.lines, *self.levels))

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each kind of results with at least two points of a line."""
        candidates = []
        for kind, results in self.by_kind(material).items():
            found = [(swept, swept.points(results, self.setting)) for swept in self.lines]
            lines = [(swept, points) for swept, points in found if points]
            if lines:
                own = [result for _, points in lines for result in members(points)]
                rank = len(lines), sum(len(points) for _, points in lines), newest(own)
                candidates.append((rank, self._picture(kind, lines, results)))
        return best_picture(candidates)

    def needed(self, material: Material) -> Sequence[str]:
        """Return the recipes of which no result under the protocol is there."""
        return missing_recipes((*self.lines, *self.levels), material.results)

    def by_kind(self, material: Material) -> dict[Kind, list[Run]]:
        """Return the results with the metric, those of one picture together."""
        length = "" if self.setting == "epochs" else None
        return grouped(
            (kind_of(result, length=length), result)
            for result in material.results
            if result.task in self.tasks and has_number(result, self.metric)
        )

    def _picture(
        self, kind: Kind, lines: Sequence[tuple[Swept, Points]], results: Sequence[Run]
    ) -> Picture:
        own = [(swept, result) for swept, points in lines for result in members(points)]
        exact = all(swept.is_published(result) for swept, result in own)
        levels = []
        for swept in self.levels:
            fitting = [r for r in results if not exact or swept.is_published(r)]
            for name in swept.shared if not exact else ():
                values = [result.settings.get(name) for _, result in own]
                fitting = [r for r in fitting if all(r.settings.get(name) == v for v in values)]
            if points := swept.points(fitting, LEVEL):
                levels.append((swept, points))
        every = [*lines, *levels]
        drawn = [mean_line(swept.label, points, self.metric) for swept, points in every]
        panel = LinePanel(
            x_label=self.symbol,
            y_label=self.y_label or accuracy_label(kind.task),
            lines=tuple(drawn[: len(lines)]),
            levels=tuple(drawn[len(lines) :]),
            published=self.published if exact else (),
            log_x=self.log_x,
        )
        return captioned(
            self,
            [panel],
            {swept.label: members(points) for swept, points in every},
            varied=[self.setting, *(name for swept, _ in every for name in swept.follows)],
            shown=[swept.label for swept in (*self.lines, *self.levels)],
            header=("series", self.symbol, self.metric, "standard_deviation", "runs", "recipes"),
            rows=[
                (
                    line.label,
                    *point_words(point),
                    " ".join(dict.fromkeys(r.recipe or r.backbone for r in results)),
                )
                for line, (_, points) in zip(drawn, every, strict=True)
                for point, results in zip(line.points, points.values(), strict=True)
            ],
        )


def missing_recipes(lines: Iterable[Swept], results: Iterable[Run]) -> list[str]:
    """Return the recipes of lines that have none of these results, each with its task."""
    results = list(results)
    missing = []
    for swept in lines:
        done = {result.recipe for result in results if swept.is_published(result)}
        missing += [f"{recipe}: {swept.key}" for recipe in swept.recipes if recipe not in done]
    return list(dict.fromkeys(missing))


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

    def is_published(self, one: Run) -> bool:
        """Return whether a result is one of the paper's."""
        return self.upward.is_published(one)

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each kind of pre-training with at least two such backbones."""
        of_x, of_y = (sweep.by_kind(material).items() for sweep in (self.across, self.upward))
        return best_picture(
            ((), picture)
            for (kind_x, xs), (kind, ys) in product(of_x, of_y)
            if kind_x.pretraining == kind.pretraining
            for picture in self._pictures(xs, ys)
        )

    def needed(self, material: Material) -> Sequence[str]:
        """Return the missing recipes of both sweeps."""
        return list(dict.fromkeys([*self.across.needed(material), *self.upward.needed(material)]))

    def _pictures(self, xs: Sequence[Run], ys: Sequence[Run]) -> Iterator[Picture]:
        """Yield the picture of one kind, if two backbones at least have both numbers."""
        of_x = [result for _, points in _lines(self.across, xs) for result in members(points)]
        across = grouped((r.sha256, number_of(r, self.across.metric)) for r in of_x)
        both = [result for result in ys if result.sha256 in across]
        found = _lines(self.upward, both)
        if not any(len(points) > 1 for _, points in found):
            return
        lines = []
        for swept, values in found:
            points, labels = [], []
            for value, own in values.items():
                x = statistics.fmean(
                    x for sha256 in {r.sha256 for r in own} for x in across[sha256]
                )
                points.append(mean_point(x, [number_of(r, self.upward.metric) for r in own]))
                labels.append(swept.label if math.isnan(value) else f"{value:g}")
            lines.append(Line(label=swept.label, points=tuple(points), point_labels=tuple(labels)))
        y_label = accuracy_label(ys[0].task)
        yield captioned(
            self,
            [LinePanel(x_label=self.x_label, y_label=y_label, lines=tuple(lines))],
            {swept.label: members(points) for swept, points in found},
            findings=[
                f"Numbers beside the points are {self.symbol}.",
                f"Statistics of views: {of_x[0].task}, protocol {of_x[0].protocol}.",
            ],
            varied=[self.across.setting],
            header=("series", self.symbol, self.across.metric, self.upward.metric, "runs"),
            rows=[
                (line.label, label, f"{point.x:.4f}", f"{point.y:.4f}", str(point.num_runs))
                for line in lines
                for label, point in zip(line.point_labels, line.points, strict=True)
            ],
        )


def _lines(sweep: Sweep, results: Sequence[Run]) -> list[tuple[Swept, Points]]:
    """Return the lines and levels of a sweep that have results."""
    found = [(swept, swept.points(results, sweep.setting)) for swept in sweep.lines]
    found += [(swept, swept.points(results, LEVEL)) for swept in sweep.levels]
    return [(swept, points) for swept, points in found if points]
