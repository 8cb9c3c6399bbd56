"""Figures of a metric against a setting of pre-training: one line per method, one point per value.

Runs of one line differ in nothing else. They may be the published recipes, or any others of the
same method, such as small ones on CIFAR-10.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.drawing.figure import (
    Drawn,
    Identity,
    Level,
    Line,
    LinePanel,
    Material,
    Picture,
    Point,
    PublishedPoint,
)
from benchmarks.drawing.kinds import (
    Kind,
    accuracy_label,
    distinct_runs,
    evaluation_sentences,
    has_number,
    is_published_run,
    kind_of,
    line_key,
    mean_point,
    number_of,
    pretraining_sentences,
    runs_sentence,
)
from benchmarks.drawing.pictures import captioned, numbered, paper_sentences, pretrain_and_evaluate
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


@dataclass(frozen=True, kw_only=True)
class SweptLine:
    """Results of one line by the value of the setting."""

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

    @property
    def newest(self) -> str:
        """Return when the last result was finished."""
        return max(result.finished for result in self.members)

    def points(self, metric: str) -> tuple[Point, ...]:
        """Return the mean at each value."""
        return tuple(
            mean_point(x, [number_of(result, metric) for result in results])
            for x, results in sorted(self.results.items())
        )


@dataclass(frozen=True, kw_only=True)
class Sweep(Identity):
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

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each kind of results with at least two points of a line."""
        found = [
            (kind, lines)
            for kind, results in self.by_kind(material).items()
            for lines in self.versions(results)
        ]
        found.sort(key=lambda pair: _rank(pair[1]), reverse=True)
        pictures = [self._picture(kind, lines, material) for kind, lines in found]
        kinds = [kind for kind, _ in found]
        return Drawn(pictures=numbered(self.file_name, pictures, kinds))

    def needed(self, material: Material) -> Sequence[str]:
        """Return the commands for the recipes of which no result under the protocol is there."""
        missing: dict[str, list[str]] = {}
        for swept in (*self.lines, *self.levels):
            there = {r.model.recipe for r in material.results if swept.is_published(r)}
            missing.setdefault(swept.probe.key, []).extend(
                r for r in swept.recipes if r not in there
            )
        return [
            line
            for key, recipes in missing.items()
            if recipes
            for line in pretrain_and_evaluate(list(dict.fromkeys(recipes)), key)
        ]

    def by_kind(self, material: Material) -> dict[Kind, list[Result]]:
        kinds: dict[Kind, list[Result]] = {}
        for result in material.results:
            if result.task in self.tasks and has_number(result, self.metric):
                kind = kind_of(result, length="" if self.setting == "epochs" else None)
                kinds.setdefault(kind, []).append(result)
        return kinds

    def versions(self, results: Sequence[Result]) -> Iterable[list[SweptLine]]:
        """Yield the lines of each picture: the best of each method, then the second best."""
        by_method = [swept_lines(swept, results, self.setting) for swept in self.lines]
        for version in range(max(map(len, by_method), default=0)):
            yield [lines[version] for lines in by_method if version < len(lines)]

    def _picture(self, kind: Kind, lines: Sequence[SweptLine], material: Material) -> Picture:
        exact = all(line.is_published for line in lines)
        levels = [
            level
            for swept in self.levels
            if (level := self.level(swept, kind, material, published=exact, beside=lines))
        ]
        panel = LinePanel(
            x_label=self.symbol,
            y_label=self.y_label or accuracy_label(kind.task),
            lines=tuple(Line(label=li.swept.label, points=li.points(self.metric)) for li in lines),
            levels=tuple(
                Level(label=level.swept.label, point=level.points(self.metric)[0])
                for level in levels
            ),
            published=self.published if exact else (),
            log_x=self.log_x,
        )
        return captioned(
            self,
            panel,
            [*self._sentences([*lines, *levels])],
            exact=exact,
            header=("series", self.symbol, self.metric, "standard_deviation", "runs", "recipes"),
            rows=[row for line in (*lines, *levels) for row in self._rows(line)],
        )

    def level(
        self,
        swept: Swept,
        kind: Kind,
        material: Material,
        *,
        published: bool,
        beside: Sequence[SweptLine] = (),
    ) -> SweptLine | None:
        """Return the results of a level that may stand beside the lines; None without any."""
        members = [] if published else [result for line in beside for result in line.members]
        lines: dict[tuple[str, ...], list[Result]] = {}
        for result in self.by_kind(material).get(kind, ()):
            alike = all(
                result.model.settings.get(name) == member.model.settings.get(name)
                for name in swept.shared
                for member in members
            )
            if alike and swept.has(result) and swept.is_published(result) >= published:
                lines.setdefault(line_key(result, ()), []).append(result)
        if not lines:
            return None
        best = max(lines.values(), key=lambda own: (len(own), max(r.finished for r in own)))
        return SweptLine(swept=swept, results={float("nan"): distinct_runs(best)})

    def _sentences(self, lines: Sequence[SweptLine]) -> Iterable[str]:
        members = [result for line in lines for result in line.members]
        models = {line.swept.label: [result.model for result in line.members] for line in lines}
        varied = [self.setting, *(name for line in lines for name in line.swept.follows)]
        yield from pretraining_sentences(models, varied)
        yield from paper_sentences(self.id, models, varied)
        yield from evaluation_sentences(members)
        yield runs_sentence([p for line in lines for p in line.points(self.metric)], members)
        absent = [s.label for s in (*self.lines, *self.levels) if s not in [x.swept for x in lines]]
        if absent:
            yield f"Not run: {', '.join(absent)}."

    def _rows(self, line: SweptLine) -> Iterable[tuple[str, ...]]:
        for point, (_, results) in zip(
            line.points(self.metric), sorted(line.results.items()), strict=True
        ):
            recipes = dict.fromkeys(r.model.recipe or r.model.name for r in results)
            yield (
                line.swept.label,
                "" if point.x != point.x else f"{point.x:g}",
                f"{point.y:.4f}",
                "" if point.spread is None else f"{point.spread:.4f}",
                str(point.num_runs),
                " ".join(recipes),
            )


def swept_lines(swept: Swept, results: Sequence[Result], setting: str) -> list[SweptLine]:
    """Return the lines with at least two points, that with the paper's runs or most points first.

    A backbone that has two names counts once.
    """
    lines: dict[tuple[str, ...], dict[float, list[Result]]] = {}
    for result in results:
        x = _value(swept, result, setting)
        if swept.has(result) and x is not None:
            points = lines.setdefault(line_key(result, [setting, *swept.follows]), {})
            points.setdefault(x, []).append(result)
    found = [
        SweptLine(swept=swept, results={x: distinct_runs(own) for x, own in points.items()})
        for points in lines.values()
        if len(points) > 1
    ]
    return sorted(
        found, key=lambda line: (line.is_published, len(line.results), line.newest), reverse=True
    )


def _value(swept: Swept, result: Result, setting: str) -> float | None:
    """Return the value of the setting in a backbone's pre-training; None if it is not known."""
    model = result.model
    value = model.settings.get(setting)
    if isinstance(value, int | float):
        return float(value)
    return swept.recipes.get(model.recipe) if not model.settings else None


def _rank(lines: Sequence[SweptLine]) -> tuple[bool, int, int, str]:
    """Return the sort key of a picture: the paper's runs, then many lines and points, then new."""
    return (
        all(line.is_published for line in lines),
        len(lines),
        sum(len(line.results) for line in lines),
        max(line.newest for line in lines),
    )
