"""Kinds of results: those of one kind may stand in one picture. Numbers and their order.

Lines of one picture share task, length, data and arithmetic of the evaluation, and data, network
and length of pre-training. Points of one line also share the protocol and all other settings.
Statistics over views share the protocol, too: it says which images and how many views there are.
"""

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from benchmarks.drawing.figure import Line, Point
from benchmarks.pages.against import TRAIN_IMAGES, norm_difference, trained_on
from benchmarks.pages.blocks import COMPARABLE, conditions, reasons_of, without_version
from benchmarks.pages.differences import Score, difference
from benchmarks.pages.entries import sample_of
from benchmarks.pages.records import STAND_IN_TEXTURE, Model, Result, grouped

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


def kind_of(result: Result, *, length: str | None = None) -> Kind:
    """Return the kind of a result.

    length: of pre-training; that of the backbone if not given, empty if it is on the x axis.
    """
    model, common = result.model, conditions(result)
    return Kind(
        task=result.task,
        schedule=result.schedule,
        data=result.fingerprint if result.small or result.tolerated else "",
        evaluation=tuple(common[:5]),
        pretraining=(
            model.data,
            model.arch.partition("-heads")[0],
            model.epochs if length is None else length,
        ),
        space=str(result.details.get("space", "")),
        views=result.protocol_hash if result.task in VIEW_TASKS else "",
    )


def line_key(result: Result, varied: Iterable[str]) -> tuple[str, ...]:
    """Return what points of one line share beyond their kind; `varied` are the swept settings."""
    left_out = {*DESCRIPTIONS, *varied}
    settings = {k: v for k, v in result.model.settings.items() if k not in left_out}
    return (
        result.protocol_hash,
        conditions(result).crops,
        *result.departures,
        result.model.precision,
        json.dumps(settings, sort_keys=True, default=str),
    )


Points = Mapping[float, tuple[Result, ...]]
"""Results of one line by their place on the x axis, in order."""


def best_points(
    results: Iterable[tuple[float, Result]],
    varied: Iterable[str],
    is_published: Callable[[Result], bool],
    least: int,
) -> Points:
    """Return one line of results with their x: the paper's, or that of most points and runs.

    Among these, the newest. Empty if none has at least so many points. A backbone that has two
    names counts once.
    """
    varied = list(varied)
    lines = grouped((line_key(result, varied), (x, result)) for x, result in results)
    every = [grouped(line) for line in lines.values()]

    def rank(points: Mapping[float, Sequence[Result]]) -> tuple[bool, int, int, str]:
        own = members(points)
        return all(map(is_published, own)), len(points), len(own), newest(own)

    best = max((points for points in every if len(points) >= least), key=rank, default={})
    return {x: distinct_runs(best[x]) for x in sorted(best)}


def members(points: Mapping[float, Sequence[Result]]) -> list[Result]:
    """Return all results of a line."""
    return [result for results in points.values() for result in results]


def mean_line(label: str, points: Points, metric: str) -> Line:
    """Return the mean of a metric at each place."""
    means = (mean_point(x, [number_of(r, metric) for r in own]) for x, own in points.items())
    return Line(label=label, points=tuple(means))


def distinct_runs(results: Iterable[Result]) -> tuple[Result, ...]:
    """Return one result of each backbone and seed: a backbone that has two names counts once."""
    return tuple({(r.model.sha256, r.seed): r for r in results}.values())


def is_published_run(result: Result, recipes: Iterable[str], key: str) -> bool:
    """Return whether a result is that of an unchanged recipe under the protocol of TASKS[key]."""
    from transfer.tasks import TASKS  # not above: most that read records for pictures need no task

    model = result.model
    data = model.recipe.partition("/")[2].partition("-")[0]
    return (
        reasons_of(result) == COMPARABLE
        and without_version(result.protocol) == without_version(TASKS[key].protocol)
        and model.recipe in recipes
        and is_unchanged(model)
        and model.texture != STAND_IN_TEXTURE
        and data in TRAIN_IMAGES
        and trained_on(data, model)
    )


def is_unchanged(model: Model) -> bool:
    """Return whether a backbone was trained as its recipe and its paper say."""
    return not (model.changed or norm_difference(model.paper_norm_groups, model.norm_groups))


def newest_by_label(
    results: Iterable[Result],
    labels: Callable[[Result], Iterable[str]],
    is_published: Callable[[Result], bool],
) -> dict[Kind, dict[str, Result]]:
    """Return one result of each kind and label: the newest of the paper's own, or of all others."""
    kinds: dict[Kind, dict[str, Result]] = {}
    for result in results:
        for label in labels(result):
            own = kinds.setdefault(kind_of(result), {})
            both = own.get(label, result), result
            own[label] = max(both, key=lambda one: (is_published(one), one.finished))
    return kinds


def newest(results: Iterable[Result]) -> str:
    """Return when the last result was finished."""
    return max(result.finished for result in results)


def problem_of(result: Result, read: Callable[[Result], object]) -> str:
    """Return why `read` cannot read the details of a record; empty if it can."""
    try:
        read(result)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError) as error:
        return (
            f"{result.path}, the record of {result.model.name}: its details cannot be shown "
            f"({type(error).__name__}: {error}); delete the file and run the command again that "
            "python -m benchmarks.explain prints for it"
        )
    return ""


def has_number(result: Result, name: str) -> bool:
    """Return whether a record holds a number among its metrics or details."""
    value = result.metrics.get(name, result.details.get(name))
    return isinstance(value, int | float) and not isinstance(value, bool)


def number_of(result: Result, name: str) -> float:
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


def shares_of_tested(results: Mapping[str, Sequence[Result]], metric: str) -> dict[str, Score]:
    """Return by label the mean of a metric that counts test images, with what gives its errors."""
    return {
        label: Score(
            mean=statistics.fmean(number_of(result, metric) for result in own),
            sample=sample_of(own, metric),
        )
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
