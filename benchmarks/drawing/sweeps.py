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

from benchmarks.drawing.figure import (
    Drawn,
    Figure,
    Line,
    LinePanel,
    Material,
    Picture,
    PublishedPoint,
)
from benchmarks.drawing.kinds import (
    Kind,
    accuracy_label,
    distinct_runs,
    has_number,
    is_published_run,
    kind_of,
    line_key,
    mean_point,
    newest,
    number_of,
)
from benchmarks.drawing.pictures import (
    Candidate,
    captioned,
    point_words,
    pretrain_and_evaluate,
    ranked_pictures,
    runs_words,
    versions,
)
from benchmarks.pages.records import Result

ACCURACY_TASKS = tuple(
    f"{dataset}_{task}"
    for dataset in ("in100", "cifar10", "cifar100")
    for task in ("linear", "knn")
)


@dataclass(frozen=True)
class Probe:
    """Evaluation that gives a paper's number."""

    protocol: str
    """Name of the protocol, without version."""
    key: str
    """Key in TASKS."""


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
    probe: Probe

    def has(self, result: Result) -> bool:
        """Return whether a result belongs to a line of this kind."""
        model = result.model
        if model.method != self.method:
            return False
        if not model.settings:
            return model.recipe in self.recipes
        return all(model.settings.get(name) == value for name, value in self.where.items())

    def is_published(self, result: Result) -> bool:
        """Return whether a result is one of the paper's."""
        return is_published_run(result, self.recipes, self.probe.protocol)

    def value(self, result: Result, setting: str) -> float | None:
        """Return the value of the setting in a backbone's pre-training; None if it is not known."""
        value = result.model.settings.get(setting)
        if isinstance(value, int | float):
            return float(value)
        return None if result.model.settings else self.recipes.get(result.model.recipe)


@dataclass(frozen=True, kw_only=True)
class SweptLine:
    """Results of one line by the value of the setting; of a level by NaN."""

    swept: Swept
    results: Mapping[float, tuple[Result, ...]]

    @property
    def members(self) -> list[Result]:
        """Return all results, by value."""
        return [result for _, results in sorted(self.results.items()) for result in results]

    @property
    def is_published(self) -> bool:
        """Return whether all results are the paper's."""
        return all(self.swept.is_published(result) for result in self.members)

    def drawn(self, metric: str) -> Line:
        """Return the mean at each value."""
        points = (
            mean_point(x, [number_of(result, metric) for result in results])
            for x, results in sorted(self.results.items())
        )
        return Line(label=self.swept.label, points=tuple(points))


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

    @property
    def labels(self) -> list[str]:
        """Return the labels of lines and levels."""
        return [swept.label for swept in (*self.lines, *self.levels)]

    def is_published(self, one: Result) -> bool:
        """Return whether a result is one of the paper's."""
        return any(s.has(one) and s.is_published(one) for s in (*self.lines, *self.levels))

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each kind of results with at least two points of a line."""
        return ranked_pictures(
            Candidate(_rank(lines), kind, self._picture(kind, lines, results))
            for kind, results in self.by_kind(material).items()
            for lines in versions(swept_lines(one, results, self.setting) for one in self.lines)
        )

    def needed(self, material: Material) -> Sequence[str]:
        """Return the commands for the recipes of which no result under the protocol is there."""
        return commands_for((*self.lines, *self.levels), material.results)

    def by_kind(self, material: Material) -> dict[Kind, list[Result]]:
        """Return the results with the metric, those of one picture together."""
        kinds: dict[Kind, list[Result]] = {}
        for result in material.results:
            if result.task in self.tasks and has_number(result, self.metric):
                kind = kind_of(result, length="" if self.setting == "epochs" else None)
                kinds.setdefault(kind, []).append(result)
        return kinds

    def _picture(
        self, kind: Kind, lines: Sequence[SweptLine], results: Sequence[Result]
    ) -> Picture:
        exact = all(line.is_published for line in lines)
        beside = [] if exact else [result for line in lines for result in line.members]
        found = (level_of(one, results, published=exact, beside=beside) for one in self.levels)
        levels = [level for level in found if level is not None]
        every = [*lines, *levels]
        drawn = [line.drawn(self.metric) for line in every]
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
            {line.swept.label: line.members for line in every},
            varied=[self.setting, *(name for line in every for name in line.swept.follows)],
            runs=runs_words(drawn),
            header=("series", self.symbol, self.metric, "standard_deviation", "runs", "recipes"),
            rows=[
                (line.swept.label, *point_words(point), " ".join(_recipes(own)))
                for line, means in zip(every, drawn, strict=True)
                for point, (_, own) in zip(means.points, sorted(line.results.items()), strict=True)
            ],
        )


def level_of(
    swept: Swept, results: Iterable[Result], *, published: bool = False, beside: Sequence[Result]
) -> SweptLine | None:
    """Return the results of a level that may stand beside others; None without any.

    published: only the paper's own. beside: results with which its shared settings agree.
    """
    lines: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        alike = all(
            result.model.settings.get(name) == member.model.settings.get(name)
            for name in swept.shared
            for member in beside
        )
        if alike and swept.has(result) and swept.is_published(result) >= published:
            lines.setdefault(line_key(result, ()), []).append(result)
    if not lines:
        return None
    best = max(lines.values(), key=lambda own: (len(own), newest(own)))
    return SweptLine(swept=swept, results={math.nan: distinct_runs(best)})


def swept_lines(swept: Swept, results: Iterable[Result], setting: str) -> list[SweptLine]:
    """Return the lines with at least two points, that with the paper's runs or most points first.

    A backbone that has two names counts once.
    """
    lines: dict[tuple[str, ...], dict[float, list[Result]]] = {}
    for result in results:
        x = swept.value(result, setting)
        if swept.has(result) and x is not None:
            points = lines.setdefault(line_key(result, [setting, *swept.follows]), {})
            points.setdefault(x, []).append(result)
    found = [
        SweptLine(swept=swept, results={x: distinct_runs(own) for x, own in points.items()})
        for points in lines.values()
        if len(points) > 1
    ]
    return sorted(
        found,
        key=lambda line: (line.is_published, len(line.results), newest(line.members)),
        reverse=True,
    )


def commands_for(lines: Iterable[Swept], results: Iterable[Result]) -> list[str]:
    """Return the commands for the recipes of lines that have none of these results."""
    missing: dict[str, list[str]] = {}
    for swept in lines:
        there = {result.model.recipe for result in results if swept.is_published(result)}
        missing.setdefault(swept.probe.key, []).extend(r for r in swept.recipes if r not in there)
    return [
        line
        for key, recipes in missing.items()
        if recipes
        for line in pretrain_and_evaluate([*dict.fromkeys(recipes)], key)
    ]


def _recipes(results: Iterable[Result]) -> dict[str, None]:
    return dict.fromkeys(result.model.recipe or result.model.name for result in results)


def _rank(lines: Sequence[SweptLine]) -> tuple[int, int, str]:
    """Return the rank of a picture: many lines and points, then new."""
    newest_of_all = max(newest(line.members) for line in lines)
    return len(lines), sum(len(line.results) for line in lines), newest_of_all


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

    def is_published(self, one: Result) -> bool:
        """Return whether a result is one of the paper's."""
        return self.upward.is_published(one)

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each kind of pre-training with at least two such backbones."""
        of_x, of_y = (sweep.by_kind(material).items() for sweep in (self.across, self.upward))
        return ranked_pictures(
            Candidate((), kind, picture)
            for (kind_x, xs), (kind, ys) in product(of_x, of_y)
            if kind_x.pretraining == kind.pretraining
            for picture in self._pictures(xs, ys)
        )

    def needed(self, material: Material) -> Sequence[str]:
        """Return the commands of both sweeps."""
        return list(dict.fromkeys([*self.across.needed(material), *self.upward.needed(material)]))

    def _pictures(self, xs: Sequence[Result], ys: Sequence[Result]) -> Iterator[Picture]:
        """Yield the picture of one kind, if two backbones at least have both numbers."""
        setting = self.across.setting
        # a backbone has one set of settings, so that only x itself needs a line of its own
        of_x = [line for one in self.across.lines for line in swept_lines(one, xs, setting)[:1]]
        of_x += [line for one in self.across.levels if (line := level_of(one, xs, beside=()))]
        across: dict[str, list[float]] = {}
        for result in (result for line in of_x for result in line.members):
            number = number_of(result, self.across.metric)
            across.setdefault(result.model.sha256, []).append(number)
        both = [result for result in ys if result.model.sha256 in across]
        lines = [line for one in self.upward.lines for line in swept_lines(one, both, setting)[:1]]
        if not lines:
            return
        levels = [level_of(one, both, beside=()) for one in self.upward.levels]
        yield self._picture([*lines, *filter(None, levels)], across, of_x[0].members[0])

    def _picture(
        self, found: Sequence[SweptLine], across: Mapping[str, Sequence[float]], first: Result
    ) -> Picture:
        """Return the picture of lines upward; `across` has the numbers of each backbone's hash."""
        lines = []
        for line in found:
            points, labels = [], []
            for value, own in sorted(line.results.items()):
                xs = [x for sha256 in {one.model.sha256 for one in own} for x in across[sha256]]
                ys = [number_of(one, self.upward.metric) for one in own]
                points.append(mean_point(statistics.fmean(xs), ys))
                labels.append(line.swept.label if math.isnan(value) else f"{value:g}")
            label = line.swept.label
            lines.append(Line(label=label, points=tuple(points), point_labels=tuple(labels)))
        y_label = accuracy_label(found[0].members[0].task)
        return captioned(
            self,
            [LinePanel(x_label=self.x_label, y_label=y_label, lines=tuple(lines))],
            {line.swept.label: line.members for line in found},
            findings=[
                f"Numbers beside the points are {self.symbol}.",
                f"Statistics of views: {first.task}, protocol {first.protocol}.",
            ],
            varied=[self.across.setting],
            runs=runs_words(lines),
            header=("series", self.symbol, self.across.metric, self.upward.metric, "runs"),
            rows=[
                (line.label, label, f"{point.x:.4f}", f"{point.y:.4f}", str(point.num_runs))
                for line in lines
                for label, point in zip(line.point_labels, line.points, strict=True)
            ],
        )
