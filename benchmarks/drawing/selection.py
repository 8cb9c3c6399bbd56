"""Select the results that may share a picture or a line.

All lines of a picture have the same task, length, data and precision of the evaluation, and the
same data, network and length of pre-training. All points of a line also have the same protocol and
the same other settings. If the task measures statistics over views, all lines have the same
protocol, since it determines the images and the views.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any, NamedTuple

from benchmarks.results.records import STAND_IN_TEXTURE, Backbone, Conditions, Run
from benchmarks.results.verdicts import PRETRAINING_DATA, norm_difference, trained_on
from benchmarks.words import grouped

DESCRIPTIONS = ("paper", "table_row", "images")
"""Settings that describe the run and do not affect it."""
VIEW_TASKS = ("in100_view_statistics", "cifar10_view_statistics")
"""Tasks that measure statistics over views."""
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""Errors that malformed content of a record raises."""
NO_SETTING = ""
"""Setting of runs without a value on the x axis (NaN)."""


class Point(NamedTuple):
    """Mean of the runs at one value of x."""

    x: float
    y: float
    spread: float | None = None
    """Standard deviation over the runs; None for a single run."""
    num_runs: int = 1

    def csv_fields(self, digits: int = 4) -> tuple[str, ...]:
        """Return x, mean, standard deviation and count as CSV texts."""
        x = "" if math.isnan(self.x) else f"{self.x:g}"
        spread = "" if self.spread is None else f"{self.spread:.{digits}f}"
        return x, f"{self.y:.{digits}f}", spread, str(self.num_runs)


Points = Mapping[float, Sequence[Run]]
"""Runs of one line by their value on the x axis, sorted."""


class PictureKey(NamedTuple):
    """Properties that all results of one picture share."""

    task: str
    schedule: str
    data: str
    """Fingerprint of small or incomplete data; empty for full data.

    Full data may differ in layout.
    """
    evaluation: Conditions
    """Conditions of the evaluation, without crops and deviations, which differ between lines."""
    pretraining: tuple[str, ...]
    """Data, network and, unless it is on the x axis, length."""
    space: str
    """Space of statistics over views: embedding or feature."""
    views: str
    """Hash of the protocol of statistics over views; empty for other tasks."""


def picture_key(run: Run, *, length: str | None = None) -> PictureKey:
    """Return the key of a result's picture.

    length: length of pre-training; by default the backbone's, empty if it is on the x axis.
    """
    backbone = run.backbone
    network = backbone.arch.partition("-heads")[0]
    return PictureKey(
        task=run.task,
        schedule=run.schedule,
        data=run.fingerprint if run.small or run.tolerated else "",
        evaluation=run.conditions._replace(crops="", departures=""),
        pretraining=(backbone.data, network, backbone.epochs if length is None else length),
        space=str(run.details.get("space", "")),
        views=run.record.protocol["hash"] if run.task in VIEW_TASKS else "",
    )


def line_key(run: Run, swept: Iterable[str]) -> tuple[str, ...]:
    """Return the key of a result's line; `swept` settings may differ."""
    omitted, record = {*DESCRIPTIONS, *swept}, run.record
    settings = {k: value for k, value in run.backbone.settings.items() if k not in omitted}
    evaluation = record.protocol["hash"], run.conditions.crops, *record.departures
    other_settings = json.dumps(settings, sort_keys=True, default=str)
    return *evaluation, run.backbone.precision, other_settings


@dataclass(frozen=True, kw_only=True)
class MethodLine:
    """One line of a figure: a method with its published recipes."""

    label: str
    method: str
    recipes: Mapping[str, float]
    """Value of x by recipe; arbitrary if the line has no x."""
    where: Mapping[str, Any] = field(default_factory=dict)
    """Settings that distinguish it from other runs of the method."""
    follows: Sequence[str] = ()
    """Settings that follow from the one on the x axis."""
    shared: Sequence[str] = ()
    """Settings that a horizontal line shares with the other lines."""
    key: str
    """Key in TASKS of the evaluation that gives the paper's number."""

    def has(self, run: Run) -> bool:
        """Return whether a result belongs to such a line."""
        backbone = run.backbone
        if backbone.method != self.method or not backbone.settings:
            return backbone.method == self.method and backbone.recipe in self.recipes
        return all(backbone.settings.get(name) == value for name, value in self.where.items())

    def is_published(self, run: Run) -> bool:
        """Return whether a result is one of the paper's."""
        return self.has(run) and is_published(run, self.recipes, self.key)

    def points(self, runs: Iterable[Run], setting: str) -> Points:
        """Return the results on the line, by value of the setting.

        It is empty with fewer than two values.
        """

        def value(run: Run) -> float | None:
            settings = run.backbone.settings
            stored = math.nan if setting == NO_SETTING else settings.get(setting)
            if isinstance(stored, int | float):
                return float(stored)
            return None if settings else self.recipes.get(run.backbone.recipe)

        placed = [(x, run) for run in runs if self.has(run) if (x := value(run)) is not None]
        minimum = 1 if setting == NO_SETTING else 2
        return best_points(placed, [setting, *self.follows], self.is_published, minimum)


def best_points(
    placed: Iterable[tuple[float, Run]],
    swept: Sequence[str],
    is_own: Callable[[Run], bool],
    minimum: int,
) -> Points:
    """Return the best line's results by x.

    The paper's line has precedence, then the line with most points, most runs, and the newest
    result. Empty if no line has the minimum number of points. A backbone with two names counts
    once.
    """
    lines = grouped((line_key(run, swept), (x, run)) for x, run in placed)
    candidates = [points for line in lines.values() if len(points := grouped(line)) >= minimum]

    def rank(points: Points) -> tuple[bool, int, int, str]:
        runs = members(points)
        return all(map(is_own, runs)), len(points), len(runs), newest(runs)

    best: Points = max(candidates, key=rank, default={})
    return {x: distinct(best[x]) for x in sorted(best)}


def members(points: Points) -> list[Run]:
    """Return all results of a line."""
    return [run for runs in points.values() for run in runs]


def newest(runs: Iterable[Run]) -> str:
    """Return when the last result was finished."""
    return max(run.record.finished for run in runs)


def distinct(runs: Iterable[Run]) -> list[Run]:
    """Return one result per backbone (by hash) and seed."""
    return list({(run.backbone.sha256, run.seed): run for run in runs}.values())


def is_published(run: Run, recipes: Iterable[str], key: str) -> bool:
    """Return whether an unchanged recipe was evaluated as in TASKS[key]."""
    from transfer.tasks import TASKS, reading_of  # most readers of records need no task

    backbone = run.backbone
    data = backbone.recipe.partition("/")[2].partition("-")[0]
    return (
        run.reasons.comparable
        and run.task == reading_of(key)[0]
        and run.protocol_name == TASKS[key].protocol.partition("/")[0]
        and backbone.recipe in recipes
        and is_unchanged(backbone)
        and backbone.texture != STAND_IN_TEXTURE
        and data in PRETRAINING_DATA
        and trained_on(data, backbone)
    )


def is_unchanged(backbone: Backbone) -> bool:
    """Return whether a backbone was trained as in its recipe and paper."""
    groups = backbone.paper_norm_groups, backbone.norm_groups
    return not (backbone.changed or norm_difference(*groups))


def number_of(run: Run, name: str) -> float:
    """Return a number from a record's metrics or details."""
    return float(run.metrics[name] if name in run.metrics else run.details[name])


def mean_point(x: float, values: Sequence[float]) -> Point:
    """Return the mean and, for several runs, the standard deviation."""
    return Point(x, fmean(values), stdev(values) if len(values) > 1 else None, len(values))


def mean_points(points: Points, metric: str) -> list[Point]:
    """Return the mean of a metric at each value of x."""
    return [mean_point(x, [number_of(run, metric) for run in runs]) for x, runs in points.items()]
