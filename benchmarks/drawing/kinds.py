"""Kinds of results: those of one kind may stand in one picture. Words for captions.

Lines of one picture share task, length, data and arithmetic of the evaluation, and data, network
and length of pre-training. Points of one line also share the protocol and all other settings.
Statistics over views share the protocol, too: it says which images and how many views there are.

A difference counts as noise up to two standard errors: of shares of the same test images the paired
one, of others the binomial one; of a mean over images, that of their spread. Several runs would
add their own differences.
"""

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

from benchmarks.drawing.figure import Point
from benchmarks.pages.against import trained_on
from benchmarks.pages.blocks import (
    COMPARABLE,
    conditions,
    processes_words,
    reasons_of,
    schedule_words,
    tolerated_words,
)
from benchmarks.pages.differences import Score, are_paired, difference
from benchmarks.pages.entries import sample_of
from benchmarks.pages.records import SMALL_DATA, STAND_IN_TEXTURE, Model, Result

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
PRETRAINING_DATA = ("in100", "in1k", "cifar10", "cifar100")
"""Data sets of recipes, as the first word of their names says."""


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
        *result.departures,
        result.model.precision,
        json.dumps(settings, sort_keys=True, default=str),
    )


def distinct_runs(results: Iterable[Result]) -> tuple[Result, ...]:
    """Return one result of each backbone and seed: a backbone that has two names counts once."""
    return tuple({(r.model.sha256, r.seed): r for r in results}.values())


def is_published_run(result: Result, recipes: Iterable[str], protocol: str) -> bool:
    """Return whether a result is that of an unchanged recipe under the paper's protocol."""
    model = result.model
    data = model.recipe.partition("/")[2].partition("-")[0]
    return (
        reasons_of(result) == COMPARABLE
        and result.protocol.startswith(f"{protocol}/")
        and model.recipe in recipes
        and not model.changed
        and model.texture != STAND_IN_TEXTURE
        and data in PRETRAINING_DATA
        and trained_on(data, model)
    )


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
            f"{result.path.name} of {result.model.name}: its details cannot be shown "
            f"({type(error).__name__}: {error}); run the task again"
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


def evaluation_sentences(results: Sequence[Result]) -> list[str]:
    """Return sentences on task, protocol, length, data, arithmetic, departures and seeds."""
    first = results[0]
    tasks = ", ".join(dict.fromkeys(result.task for result in results))
    protocols = ", ".join(sorted({result.protocol for result in results}))
    data = SMALL_DATA.get(first.small, "full data")
    counts = counts_words(first)
    words = [
        f"{tasks}, protocol {protocols}",
        schedule_words(first.schedule),
        f"{data} ({counts})" if counts else data,
        *tolerated_words(first),
        f"engine {first.engine}",
        f"features in {first.features_in}",
        *([processes_words(first)] if first.num_processes > 1 else []),
    ]
    departures = dict.fromkeys(text for result in results for text in result.departures)
    sentences = [f"Evaluation: {'; '.join(words)}."]
    if departures:
        sentences.append(f"Departures from the protocol: {'; '.join(departures)}.")
    return sentences


def counts_words(result: Result) -> str:
    """Return words such as "5,000 training and 1,000 test images"; empty for older records."""
    words = []
    for key, counts in result.counts.items():
        train, test = counts.get("trainval") or counts.get("train"), counts.get("test")
        if train and test:
            name = f"{key}: " if len(result.counts) > 1 else ""
            words.append(f"{name}{train:,} training and {test:,} test images")
    return "; ".join(words)


def runs_sentence(points: Iterable[Point], results: Sequence[Result]) -> str:
    """Return a sentence on the number of runs and their seeds."""
    counts = sorted({point.num_runs for point in points})
    seeds = seed_words(result.seed for result in results)
    if counts == [1]:
        return f"One run for each point, {seeds}."
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Means ± standard deviation over {number} runs, {seeds}."


def seed_words(seeds: Iterable[object]) -> str:
    """Return words such as "seed 0" or "seeds 0, 1", each seed once."""
    distinct = sorted(set(seeds), key=lambda seed: (len(str(seed)), str(seed)))
    return f"seed{'s' * (len(distinct) > 1)} {', '.join(map(str, distinct))}"


def pretraining_sentences(
    models: Mapping[str, Sequence[Model]], varied: Iterable[str]
) -> list[str]:
    """Return sentences on the pre-training of each line: recipes, network, length, data, changes.

    varied: settings on the x axis, which are no changes of a recipe.
    """
    lines = [_line_words(label, own) for label, own in models.items()]
    sentences = [f"Pre-training: {'; '.join(lines)}."]
    ways = {label: _way(own[0], varied) for label, own in models.items()}
    if len(set(ways.values())) == 1 and (way := next(iter(ways.values()))):
        sentences.append(f"{'All' if len(ways) > 1 else 'Pre-trained'} with {way}.")
    elif any(ways.values()):
        known = [f"{label} with {way or 'unknown settings'}" for label, way in ways.items()]
        sentences.append(f"{'; '.join(known)}.")
    data = dict.fromkeys(model.data for own in models.values() for model in own if model.data)
    if data:
        sentences.append(f"Its images: {'; '.join(data)}.")
    changes = {label: _changes(own[0], varied) for label, own in models.items()}
    parts = [f"{label}: {words}" for label, words in changes.items() if words]
    if parts and len(set(changes.values())) == 1:
        parts = [next(iter(changes.values()))]
    return [*sentences, *([f"Changed from the recipes: {'; '.join(parts)}."] if parts else [])]


def _line_words(label: str, models: Sequence[Model]) -> str:
    """Return a line's recipes, network, length and stand-in for textures."""
    first = models[0]
    lengths = sorted({float(model.epochs) for model in models if model.epochs})
    unit = "epoch" if set(lengths) == {1.0} else "epochs"
    length = f", {range_words(lengths)} {unit}" if lengths else ""
    declared = " (declared by the user)" if any(model.declared for model in models) else ""
    stand_in = any(model.texture == STAND_IN_TEXTURE for model in models)
    textures = f", textures by {STAND_IN_TEXTURE} instead of style transfer" * stand_in
    recipes = _joined_names([model.recipe or model.name for model in models])
    return f"{label}: {recipes}{declared}, {first.arch}{length}{textures}"


def _way(model: Model, varied: Iterable[str]) -> str:
    """Return a run's stem, view size, batch and arithmetic; empty if its record says none."""
    stem = {"cifar": "CIFAR stem", "imagenet": "ImageNet stem"}.get(model.stem, "")
    settings = {k: v for k, v in model.settings.items() if k not in {*varied}}
    size, batch = settings.get("views.size_px"), settings.get("batch_size")
    small = settings.get("views.small_size_px") if settings.get("config.num_small_views") else None
    words = [
        stem if model.settings else "",
        f"views of {size} px" + (f" and {small} px" if small else "") if size else "",
        f"batch {batch}" if batch else "",
        f"in {model.precision}" if model.precision else "",
    ]
    return ", ".join(word for word in words if word)


def _joined_names(names: Sequence[str]) -> str:
    """Return one name, or how many there are and how they all begin."""
    distinct = list(dict.fromkeys(names))
    if len(distinct) == 1:
        return distinct[0]
    first, last = min(distinct), max(distinct)  # what these two share, those between share, too
    length = next(
        (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first)
    )
    return f"{len(distinct)} recipes {first[:length]}*" if length else ", ".join(distinct)


def range_words(values: Sequence[float]) -> str:
    """Return the lowest and the highest of sorted values in words such as "0 to 6"."""
    low, high = values[0], values[-1]
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _changes(model: Model, varied: Iterable[str]) -> str:
    """Return the settings in which a run differs from its recipe."""
    names = [name for name in model.changed.split(", ") if name and name not in {*varied}]
    return ", ".join(
        f"{name.rpartition('.')[2].replace('_', ' ')} {value_text(model.settings.get(name))}"
        for name in names
    )


def value_text(value: object) -> str:
    """Return a setting's value in words, such as "0.1" or "0.2 to 1"."""
    if isinstance(value, list) and value:
        return " to ".join(map(value_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def share_of_tested(percent: float, results: Sequence[Result], metric: str) -> Score:
    """Return a share of the test images of records, in percent, or the mean of their shares."""
    return Score(mean=percent, sample=sample_of(results, metric))


def spread_over_images(edges: Sequence[float], counts: Sequence[float]) -> float:
    """Return the standard deviation of a histogram over its images."""
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    total = sum(counts)
    center = sum(m * c for m, c in zip(middles, counts, strict=True)) / total
    squares = sum(c * (m - center) ** 2 for m, c in zip(middles, counts, strict=True))
    return math.sqrt(squares / max(total - 1, 1))


def num_test_images(result: Result) -> int | None:
    """Return the number of test images of a result; None if its record does not say."""
    number = result.details.get("num_test")
    return number if isinstance(number, int) and number > 0 else None


def error_of(score: Score) -> float:
    """Return the standard error of a number over images; NaN if it is not known."""
    return score.sample.error(score.mean) if score.sample else math.nan


def noise_of(first: Score, second: Score) -> float:
    """Return two standard errors of the difference; without common images as if independent."""
    if first.sample and second.sample and are_paired(first.sample, second.sample):
        return 2 * difference(first, second, "").error
    return 2 * math.hypot(error_of(first), error_of(second))


def largest_noise(measured: Mapping[str, Score]) -> float:
    """Return two standard errors of the least certain difference."""
    return max(noise_of(a, b) for a, b in combinations(measured.values(), 2))


def order_words(measured: Mapping[str, Score]) -> str:
    """Return words on the order; `measured` is in the paper's, from the highest to the lowest."""
    if any(math.isnan(error_of(each)) for each in measured.values()):
        values = [each.mean for each in measured.values()]
        same = "as in the paper" if values == sorted(values, reverse=True) else "unlike the paper's"
        return f"the order is {same}; noise is not known, as records do not say how many images"
    as_in: list[tuple[str, str]] = []
    unlike: list[tuple[str, str]] = []
    pairs = [*combinations(measured, 2)]
    for high, low in pairs:
        difference = measured[high].mean - measured[low].mean
        if abs(difference) > noise_of(measured[high], measured[low]):
            (as_in if difference > 0 else unlike).append((high, low))
    if len(as_in) == len(pairs):
        return "the order is as in the paper, beyond noise"
    if not as_in and not unlike:
        what = "the difference is" if len(pairs) == 1 else "all differences are"
        return f"{what} within noise"
    parts = [f"as in the paper, {high} is above {low}" for high, low in as_in]
    parts += [f"unlike in the paper, {low} is above {high}" for high, low in unlike]
    rest = len(pairs) - len(as_in) - len(unlike)
    return "; ".join(parts) + ("; other differences are within noise" if rest else "")


def ranked(measured: Mapping[str, Score], digits: str) -> str:
    """Return names and numbers from the highest to the lowest; `digits` is a format such as .1f."""
    ordered = sorted(measured, key=lambda name: -measured[name].mean)
    return ", ".join(f"{name} {measured[name].mean:{digits}}" for name in ordered)
