"""Charts of one task: searches, losses, severities of corruptions, costs, snapshots, seeds."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.pages.blocks import backbone_key, sort_into_blocks
from benchmarks.pages.checkpoint_lines import machine
from benchmarks.pages.overview import curve_of, run_of
from benchmarks.pages.records import Model, Result
from benchmarks.report_parts.charts import Chart, Draft, Series, line_charts
from benchmarks.report_parts.task_details import SEARCHES, TaskDetails, task_details
from transfer.record import Record


@dataclass(frozen=True, kw_only=True)
class Alike:
    """Results of one backbone, or of one snapshot, that differ by their seeds only."""

    kind: str
    """Words for schedule, data and protocol; empty if all results of the task agree in them."""
    model: Model
    """The backbone, with its conditions if other results of it have others."""
    runs: tuple[Result, ...]
    """One result of each seed, the newest, sorted by seed."""


def alike(
    results: Iterable[Result], group_key: Callable[[Model], Hashable] = backbone_key
) -> list[Alike]:
    """Return the results of a task in groups that may share a mean, sorted by kind and backbone.

    group_key: key of a backbone. Results of all backbones with one key are kept apart by their
    conditions as if they were those of one backbone.
    """
    blocks = sort_into_blocks(results, group_key=group_key)
    several_blocks = len(blocks) > 1
    several_protocols = len({column for block in blocks for column in block.columns}) > 1
    groups = []
    for block in blocks:
        for (model, (_, protocol)), done in sorted(block.done.items()):
            words = [block.heading[0].lower() + block.heading[1:]] * several_blocks
            words += [f"protocol {protocol}"] * several_protocols
            by_seed = {r.seed: r for r in sorted(done, key=lambda r: (r.seed, r.finished))}
            groups.append(Alike(kind=", ".join(words), model=model, runs=(*by_seed.values(),)))
    return groups


@dataclass(frozen=True)
class Named:
    """A result with its record's details, and a name that no other record of the task has."""

    name: str
    result: Result
    details: TaskDetails
    machine: str
    """Hardware in words."""
    millions: float
    """Parameters of the network; NaN if the record does not say them."""
    speed: Mapping[str, float]
    """Images per second of the network alone, by their side in px."""


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
        found.append(
            Named(
                f"{result.model.label}{words}",
                result,
                task_details(record.details),
                machine(record),
                *_cost(record),
            )
        )
    return found


def _cost(record: Record) -> tuple[float, dict[str, float]]:
    """Return the network's parameters in millions and its speed; of a foreign record none."""
    size, speed = record.backbone.get("num_parameters"), record.speed
    return (
        size / 1e6 if isinstance(size, int) else math.nan,
        {
            side: float(rate)
            for side, rate in (speed.items() if isinstance(speed, dict) else ())
            if side.isdigit() and isinstance(rate, int | float)
        },
    )


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
    """Return the result's main number; below all others if the record has no finite one."""
    value = result.metrics.get(result.primary_metric, -math.inf)
    return value if math.isfinite(value) else -math.inf


def charts_of(records: Sequence[Named], snapshots: Sequence[Result]) -> list[Chart]:
    """Return the charts of a task for which its records hold the numbers.

    A backbone has the same color in all of them.
    """
    return line_charts(
        [
            *_searches(records),
            _severities(records),
            *_costs(records),
            *_snapshots(snapshots),
            _passes(records),
            _losses(records),
        ]
    )


def _searches(records: Sequence[Named]) -> Iterable[Draft]:
    """Yield a chart for each kind of search."""
    for scores, chosen, words in SEARCHES:
        series = []
        diverged = 0
        for one in records:
            found = one.details.searches[scores]
            points = [(rate, score) for rate, score in found if score >= 0]
            diverged += sum(score < 0 for _, score in found)
            place = _nearest(one.details.chosen.get(chosen, math.nan), [x for x, _ in points])
            series.append(Series(name=one.name, points=points, chosen=place))
        setting = "cost" if not chosen else "learning rate"
        note = "Shaded: edges of the search, beyond which the best may lie."
        if any(one.chosen is not None for one in series):
            note = f"Ring: chosen. {note}"
        if diverged:
            plural = "" if diverged == 1 else "s"
            note += f" {diverged} {setting.split()[-1]}{plural} diverged and left out."
        yield Draft(
            title=f"Search over the {setting}",
            x=setting,
            y=words,
            series=series,
            note=note,
            log_x=True,
            edges=True,
        )


def _nearest(value: float, places: Sequence[float]) -> float | None:
    """Return the place that a stored setting names; rates are stored with few digits."""
    if not math.isfinite(value) or not places:
        return None
    return min(places, key=lambda place: abs(place - value))


def _severities(records: Sequence[Named]) -> Draft:
    """Return top-1 by severity of the corruptions, as the mean over their kinds."""
    series = []
    for one in records:
        by_severity: dict[float, list[float]] = {}
        for severities in one.details.corruptions.values():
            for severity, value in severities:
                by_severity.setdefault(severity, []).append(value)
        points = [(severity, fmean(values)) for severity, values in sorted(by_severity.items())]
        series.append(Series(name=one.name, points=points))
    title = "Accuracy by severity of the corruption"
    return Draft(title=title, x="severity", y="top-1, percent", series=series)


def _costs(records: Sequence[Named]) -> Iterable[Draft]:
    """Yield accuracy against parameters and against speed, where the networks differ."""
    if len({one.millions for one in records if math.isfinite(one.millions)}) < 2:
        return
    metric = records[0].result.primary_metric
    sides = set.intersection(*(set(one.speed) for one in records))
    place = {one.machine for one in records}
    kinds = [("parameters", "parameters, millions", "", [one.millions for one in records])]
    if sides and len(place) == 1:
        side = max(sides, key=int)
        note = f"Network alone, without reading of images; {side} px; {place.pop()}."
        rates = [one.speed[side] for one in records]
        kinds.append(("speed", "images per second", note, rates))
    for what, x, note, numbers in kinds:
        series = [
            Series(name=one.name, points=[(number, _main_number(one.result))])
            for one, number in zip(records, numbers, strict=True)
        ]
        title = f"Accuracy against {what}"
        yield Draft(title=title, x=x, y=f"{metric}, percent", series=series, note=note, log_x=True)


def _snapshots(snapshots: Sequence[Result]) -> Iterable[Draft]:
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
        yield Draft(
            title="During pre-training",
            x="epoch of pre-training",
            y=f"{metric}, percent",
            series=[Series(name=name, points=sorted(of)) for name, of in of_metric.items()],
        )


def _passes(records: Sequence[Named]) -> Draft:
    """Return the accuracy of a probe after each pass over its training images."""
    return Draft(
        title="Accuracy after each pass",
        x="pass over the training images",
        y="accuracy on test, percent",
        series=[Series(name=r.name, points=[*enumerate(r.details.passes, 1)]) for r in records],
        note="The last pass is the result; none is chosen.",
    )


def _losses(records: Sequence[Named]) -> Draft:
    """Return the training loss of tasks that train the network."""
    series = [Series(name=one.name, points=one.details.losses) for one in records]
    return Draft(title="Training loss", x="step", y="loss", series=series, markers=False)
