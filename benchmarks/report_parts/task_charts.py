"""Charts of one task: searches, training losses, severities of corruptions, snapshots, seeds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks.pages.curve_page import curve_of, run_of
from benchmarks.pages.records import Result
from benchmarks.report_parts.alike import alike
from benchmarks.report_parts.charts import Axes, Chart, Series, line_chart
from transfer.record import Record


@dataclass(frozen=True)
class Named:
    """A result with its whole record, and a name that no other record of the task has."""

    name: str
    result: Result
    record: Record


SEARCHES = (
    ("val_accuracy", "learning_rate", "accuracy on val, percent"),
    ("held_out_top1", "head_rate", "top-1 on held-out images, percent"),
    ("held_out_AP", "learning_rate", "AP on held-out images"),
    ("held_out_mIoU", "learning_rate", "mIoU on held-out images"),
    ("mean_cross_validated_AP", "", "cross-validated AP, mean over classes"),
)
"""Details of a search by its setting: scores, the chosen setting, and words for the scores."""


def named_records(pairs: Iterable[tuple[Result, Record]]) -> list[Named]:
    """Return the records of a task, named by backbone and by what tells them apart.

    Those of the best backbone come first.
    """
    ordered = sorted(pairs, key=lambda pair: _main_number(pair[0]), reverse=True)
    found: list[Named] = []
    for result, record in ordered:
        same = [r for r, _ in ordered if r.model.name == result.model.name]
        apart = [
            mine
            for mine, *others in zip(_traits(result), *map(_traits, same), strict=True)
            if {mine} != {*others}
        ]
        words = f" ({', '.join(apart)})" if apart else ""
        found.append(Named(f"{result.model.label}{words}", result, record))
    return found


def _traits(result: Result) -> tuple[str, ...]:
    """Return what may tell records of one backbone and task apart, in words."""
    return (
        result.protocol,
        f"{result.schedule} schedule",
        f"seed {result.seed}",
        f"engine {result.engine}",
        f"weights {result.model.sha256[:8]}",
    )


def _main_number(result: Result) -> float:
    """Return the result's main number; below all others if the record lacks it."""
    return result.metrics.get(result.primary_metric, -math.inf)


def charts_of(records: Sequence[Named], snapshots: Sequence[Result]) -> list[Chart]:
    """Return the charts of a task for which its records hold the numbers."""
    charts = [
        *_searches(records),
        _severities(records),
        *_snapshots(snapshots),
        _passes(records),
        _losses(records),
    ]
    return [chart for chart in charts if chart is not None]


def _searches(records: Sequence[Named]) -> Iterable[Chart | None]:
    """Yield a chart for each kind of search that the records hold."""
    for scores, chosen, words in SEARCHES:
        series = []
        diverged = 0
        for one in records:
            found = _numbers(one.record.details.get(scores))
            diverged += sum(score < 0 for _, score in found)
            points = [(rate, score) for rate, score in found if score >= 0]
            rate = one.record.details.get(chosen)
            series.append(
                Series(
                    name=one.name,
                    x=tuple(rate for rate, _ in points),
                    y=tuple(score for _, score in points),
                    chosen=_nearest(rate, [rate for rate, _ in points]) if chosen else None,
                )
            )
        setting = "cost" if not chosen else "learning rate"
        note = "Shaded: edges of the search, beyond which the best may lie."
        if any(one.chosen is not None for one in series):
            note = f"Ring: chosen. {note}"
        if diverged:
            note += f" {diverged} {setting.split()[-1]}s diverged and are left out."
        axes = Axes(x=setting, y=words, log_x=True, edges=True)
        yield line_chart(f"Search over the {setting}", series, axes, note)


def _nearest(value: object, places: Sequence[float]) -> float | None:
    """Return the place that a stored setting names; rates are stored with few digits."""
    if not isinstance(value, int | float) or not places:
        return None
    return min(places, key=lambda place: abs(place - value))


def _numbers(found: object) -> list[tuple[float, float]]:
    """Return setting and score of a stored search, in order of the settings."""
    if not isinstance(found, Mapping):
        return []
    try:
        return sorted((float(key), float(value)) for key, value in found.items())
    except (TypeError, ValueError):
        return []


def _severities(records: Sequence[Named]) -> Chart | None:
    """Return top-1 by severity of the corruptions, as the mean over their kinds."""
    series = []
    for one in records:
        kinds = one.record.details.get("top1")
        if not isinstance(kinds, Mapping):
            continue
        by_severity: dict[float, list[float]] = {}
        for severities in kinds.values():
            for severity, value in _numbers(severities):
                by_severity.setdefault(severity, []).append(value)
        x = tuple(sorted(by_severity))
        series.append(Series(name=one.name, x=x, y=tuple(fmean(by_severity[s]) for s in x)))
    axes = Axes(x="severity", y="top-1, percent")
    return line_chart("Accuracy by severity of the corruption", series, axes)


def _snapshots(snapshots: Sequence[Result]) -> Iterable[Chart | None]:
    """Yield the main number over the epochs of pre-training, a line per run and kind of result."""
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for group in alike(snapshots, run_of):
        first = group.runs[0]
        metric = first.primary_metric
        if metric in first.metrics:
            name = ", ".join(filter(None, [curve_of(group.model), group.kind]))
            point = (float(group.model.epochs or 0), first.metrics[metric])
            curves.setdefault(metric, {}).setdefault(name, []).append(point)
    for metric, of_metric in curves.items():
        series = [
            Series(name=name, x=tuple(x for x, _ in sorted(of)), y=tuple(y for _, y in sorted(of)))
            for name, of in of_metric.items()
        ]
        axes = Axes(x="epoch of pre-training", y=f"{metric}, percent")
        yield line_chart("During pre-training", series, axes)


def _passes(records: Sequence[Named]) -> Chart | None:
    """Return the accuracy of a probe after each pass over its training images."""
    series = []
    for one in records:
        found = one.record.details.get("top1_after_each_pass")
        values = tuple(map(float, found)) if isinstance(found, list) else ()
        x = tuple(float(number) for number in range(1, len(values) + 1))
        series.append(Series(name=one.name, x=x, y=values))
    axes = Axes(x="pass over the training images", y="accuracy on test, percent")
    note = "The last pass is the result; none is chosen."
    return line_chart("Accuracy after each pass", series, axes, note)


def _losses(records: Sequence[Named]) -> Chart | None:
    """Return the training loss of tasks that train the network."""
    series = []
    for one in records:
        training: Any = one.record.details.get("training")
        curve = training.get("curve") if isinstance(training, Mapping) else None
        points = _numbers(dict(curve)) if isinstance(curve, list) else []
        x = tuple(step for step, _ in points)
        series.append(Series(name=one.name, x=x, y=tuple(loss for _, loss in points)))
    return line_chart("Training loss", series, Axes(x="step", y="loss", markers=False))
