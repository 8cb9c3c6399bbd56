"""Kinds of results: those of one kind may stand in one picture. Numbers and their order.

Lines of one picture share task, length, data and arithmetic of the evaluation, and data, network
and length of pre-training. Points of one line also share the protocol and all other settings.
Statistics over views share the protocol, too: it says which images and how many views there are.
"""

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

from benchmarks.drawing.figure import Line, Point
from benchmarks.results.differences import Score, difference
from benchmarks.results.numbers import score_of_runs
from benchmarks.results.records import STAND_IN_TEXTURE, Run, grouped
from benchmarks.results.verdicts import TRAIN_IMAGES, norm_difference, trained_on

DESCRIPTIONS = ("paper", "table_row", "images")
"""Entries of a run's settings that describe it and do not shape it."""
VIEW_TASKS = ("in100_view_statistics", "cifar10_view_statistics")
"""Tasks whose results are statistics over views."""
DATASETS = {
    "in100": "ImageNet-100",
    "in1k": "ImageNet-1k",
    "inat1k": "iNaturalist-1k",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
}
"""Titles of data sets by the first word of a task's id."""


class Kind(NamedTuple):
    """Properties that all results of one picture share."""

    task: str
    schedule: str
    data: str
    """Fingerprint of small or incomplete data; empty for full data, whose layouts may differ."""
    evaluation: tuple[str, ...]
    """Arithmetic, engine, processes, state of the data."""
    pretraining: tuple[str, ...]
    """Data, network and, unless it is on the x axis, length."""
    space: str = ""
    """Space of statistics over views: embedding or feature."""
    views: str = ""
    """Hash of the protocol of statistics over views, which fixes images, split and number of views;
    empty for other tasks."""


def kind_of(result: Run, *, length: str | None = None) -> Kind:
    """Return the kind of a result.

    length: of pre-training; that of the backbone if not given, empty if it is on the x axis.
    """
    return Kind(
        task=result.task,
        schedule=result.schedule,
        data=result.fingerprint if result.small or result.tolerated else "",
        evaluation=tuple(result.conditions[:5]),
        pretraining=(
            result.data,
            result.arch.partition("-heads")[0],
            result.epochs if length is None else length,
        ),
        space=str(result.details.get("space", "")),
        views=result.protocol_hash if result.task in VIEW_TASKS else "",
    )


def line_key(result: Run, varied: Iterable[str]) -> tuple[str, ...]:
    """Return what points of one line share beyond their kind; `varied` are the swept settings."""
    left_out = {*DESCRIPTIONS, *varied}
    settings = {k: v for k, v in result.settings.items() if k not in left_out}
    return (
        result.protocol_hash,
        result.conditions.crops,
        *result.departures,
        result.precision,
        json.dumps(settings, sort_keys=True, default=str),
    )


Points = Mapping[float, tuple[Run, ...]]
"""Results of one line by their place on the x axis, in order."""


def best_points(
    results: Iterable[tuple[float, Run]],
    varied: Iterable[str],
    is_published: Callable[[Run], bool],
    least: int,
) -> Points:
    """Return one line of results with their x: the paper's, or that of most points and runs.

    Among these, the newest. Empty if none has at least so many points. A backbone that has two
    names counts once.
    """
    varied = list(varied)
    lines = grouped((line_key(result, varied), (x, result)) for x, result in results)
    every = [grouped(line) for line in lines.values()]

    def rank(points: Mapping[float, Sequence[Run]]) -> tuple[bool, int, int, str]:
        own = members(points)
        return all(map(is_published, own)), len(points), len(own), newest(own)

    best = max((points for points in every if len(points) >= least), key=rank, default={})
    return {x: distinct_runs(best[x]) for x in sorted(best)}


def members(points: Mapping[float, Sequence[Run]]) -> list[Run]:
    """Return all results of a line."""
    return [result for results in points.values() for result in results]


def mean_line(label: str, points: Points, metric: str) -> Line:
    """Return the mean of a metric at each place."""
    means = (mean_point(x, [number_of(r, metric) for r in own]) for x, own in points.items())
    return Line(label=label, points=tuple(means))


def distinct_runs(results: Iterable[Run]) -> tuple[Run, ...]:
    """Return one result of each backbone and seed: a backbone that has two names counts once."""
    return tuple({(r.sha256, r.seed): r for r in results}.values())


def is_published_run(result: Run, recipes: Iterable[str], key: str) -> bool:
    """Return whether a result is that of an unchanged recipe under the protocol of TASKS[key]."""
    from transfer.tasks import TASKS  # not above: most that read records for pictures need no task

    data = result.recipe.partition("/")[2].partition("-")[0]
    return (
        not result.reasons.words
        and result.reading == TASKS[key].protocol.partition("/")[0]
        and result.recipe in recipes
        and is_unchanged(result)
        and result.texture != STAND_IN_TEXTURE
        and data in TRAIN_IMAGES
        and trained_on(data, result)
    )


def is_unchanged(model: Run) -> bool:
    """Return whether a backbone was trained as its recipe and its paper say."""
    return not (model.changed or norm_difference(model.paper_norm_groups, model.norm_groups))


def newest_by_label(
    results: Iterable[Run],
    labels: Callable[[Run], Iterable[str]],
    is_published: Callable[[Run], bool],
) -> dict[Kind, dict[str, Run]]:
    """Return one result of each kind and label: the newest of the paper's own, or of all others."""
    kinds: dict[Kind, dict[str, Run]] = {}
    for result in results:
        for label in labels(result):
            own = kinds.setdefault(kind_of(result), {})
            both = own.get(label, result), result
            own[label] = max(both, key=lambda one: (is_published(one), one.finished))
    return kinds


def newest(results: Iterable[Run]) -> str:
    """Return when the last result was finished."""
    return max(result.finished for result in results)


def problem_of(result: Run, read: Callable[[Run], object]) -> str:
    """Return why `read` cannot read the details of a record; empty if it can."""
    try:
        read(result)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError) as error:
        return (
            f"{result.path}, the record of {result.backbone}: its details cannot be shown "
            f"({type(error).__name__}: {error}); delete the file and run the command again that "
            "python -m benchmarks.explain prints for it"
        )
    return ""


def has_number(result: Run, name: str) -> bool:
    """Return whether a record holds a number among its metrics or details."""
    value = result.metrics.get(name, result.details.get(name))
    return isinstance(value, int | float) and not isinstance(value, bool)


def number_of(result: Run, name: str) -> float:
    """Return a number of a record, of its metrics or else of its details."""
    return float(result.metrics[name] if name in result.metrics else result.details[name])


def mean_point(x: float, values: Sequence[float]) -> Point:
    """Return the mean and, for several runs, the standard deviation."""
    spread = statistics.stdev(values) if len(values) > 1 else None
    return Point(x=x, y=statistics.fmean(values), spread=spread, num_runs=len(values))


def dataset_title(task: str) -> str:
    """Return the title of a task's data set, or the task's id if it is another one."""
    return DATASETS.get(task.partition("_")[0], task)


def accuracy_label(task: str) -> str:
    """Return the label of an axis with a task's top-1."""
    way = {"linear": "linear top-1", "knn": "nearest-neighbor top-1"}
    return f"{dataset_title(task)} {way.get(task.partition('_')[2], 'top-1')} (%)"


def shares_of_tested(results: Mapping[str, Sequence[Run]], metric: str) -> dict[str, Score]:
    """Return by label the mean of a metric that counts test images, with what gives its errors."""
    # the results may be of several epochs: their spread is not one over seeds
    return {
        label: replace(score_of_runs(own, metric), std=0.0, runs=1)
        for label, own in results.items()
    }


def order_words(measured: Mapping[str, Score], task: str) -> str:
    """Return the numbers from the highest to the lowest, and which of them are surely apart."""
    ordered = sorted(measured, key=lambda label: -measured[label].mean)
    numbers = ", ".join(f"{label} {measured[label].mean:.1f}" for label in ordered)
    sure = [
        f"{high} above {low}"
        for high, low in combinations(ordered, 2)
        if difference(measured[high], measured[low], task).sure
    ]
    return f"{numbers}; surely apart: {', '.join(sure) or 'none'}"
