"""Charts of one task: searches, losses, severities of corruptions, costs, snapshots, seeds."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks.pages.blocks import backbone_key, sort_into_blocks
from benchmarks.pages.checkpoint_lines import machine
from benchmarks.pages.overview import curve_of, run_of
from benchmarks.pages.records import Model, Result, grouped
from benchmarks.report_parts.charts import Chart, Draft, Series, line_charts

SEARCHES = (
    ("val_accuracy", "learning_rate", "accuracy on val, percent"),
    ("held_out_top1", "head_rate", "top-1 on held-out images, percent"),
    ("held_out_AP", "learning_rate", "AP on held-out images"),
    ("held_out_mIoU", "learning_rate", "mIoU on held-out images"),
    ("mean_cross_validated_AP", "", "cross-validated AP, mean over classes"),
)
"""Details of a search by its setting: scores, the chosen setting, and words for the scores."""


def alike(
    results: Iterable[Result], group_key: Callable[[Model], Hashable] = backbone_key
) -> Iterator[tuple[Model, str, tuple[Result, ...]]]:
    """Yield the results of a task that may share a mean, one of each seed, the newest.

    Before them stand their backbone, and words for schedule, data and protocol, which are empty if
    all results of the task agree in them. group_key: as in `sort_into_blocks`.
    """
    blocks = sort_into_blocks(results, group_key=group_key)
    several_protocols = len({column for block in blocks for column in block.columns}) > 1
    for block in blocks:
        for (model, (_, protocol)), done in sorted(block.done.items()):
            words = [block.heading[0].lower() + block.heading[1:]] * (len(blocks) > 1)
            words += [f"protocol {protocol}"] * several_protocols
            by_seed = {r.seed: r for r in sorted(done, key=lambda r: (r.seed, r.finished))}
            yield model, ", ".join(words), tuple(by_seed.values())


@dataclass(frozen=True)
class Named:
    """A result with a name that no other record of the task has."""

    name: str
    result: Result

    @property
    def details(self) -> Mapping[str, Any]:
        """Everything that the task wrote down beside its metrics."""
        return self.result.details


def named_records(results: Iterable[Result]) -> list[Named]:
    """Return the records of a task, named by backbone and by what tells them apart.

    Those of the best backbone come first.
    """
    ordered = sorted(results, key=_main_number, reverse=True)
    named = []
    for result in ordered:
        same = [_traits(r) for r in ordered if r.model.name == result.model.name]
        each = zip(_traits(result), *same, strict=True)
        apart = [mine for mine, *others in each if {mine} != {*others}]
        named.append(
            Named(f"{result.model.label} ({', '.join(apart)})".removesuffix(" ()"), result)
        )
    return named


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


def _searches(records: Sequence[Named]) -> Iterator[Draft]:
    """Yield a chart for each kind of search."""
    for scores, chosen, words in SEARCHES:
        series = []
        diverged = 0
        for one in records:
            found = sorted((float(rate), s) for rate, s in one.details.get(scores, {}).items())
            points = [(rate, score) for rate, score in found if score is not None and score >= 0]
            diverged += sum(score is not None and score < 0 for _, score in found)
            place = _nearest(one.details.get(chosen), [rate for rate, _ in points])
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


def _nearest(value: float | None, places: Sequence[float]) -> float | None:
    """Return the place that a stored setting names; rates are stored with few digits."""
    if value is None:
        return None
    return min(places, key=lambda place: abs(place - value), default=None)


def _severities(records: Sequence[Named]) -> Draft:
    """Return top-1 by severity of the corruptions, as the mean over their kinds."""
    series = []
    for one in records:
        kinds = one.details.get("top1", {}).values()
        by_severity = grouped((float(s), value) for kind in kinds for s, value in kind.items())
        points = [(severity, fmean(values)) for severity, values in sorted(by_severity.items())]
        series.append(Series(name=one.name, points=points))
    title = "Accuracy by severity of the corruption"
    return Draft(title=title, x="severity", y="top-1, percent", series=series)


def _costs(records: Sequence[Named]) -> Iterator[Draft]:
    """Yield accuracy against parameters and against speed, where the networks differ."""
    whole = [one.result.record for one in records]
    millions = [record.backbone.get("num_parameters", math.nan) / 1e6 for record in whole]
    if len({size for size in millions if math.isfinite(size)}) < 2:
        return
    metric = records[0].result.primary_metric
    sides = set.intersection(*(set(record.speed) for record in whole))
    place = {machine(record) for record in whole}
    kinds = [("parameters", "parameters, millions", "", millions)]
    if sides and len(place) == 1:
        side = max(sides, key=int)
        note = f"Network alone, without reading of images; {side} px; {place.pop()}."
        rates = [record.speed[side] for record in whole]
        kinds.append(("speed", "images per second", note, rates))
    for what, x, note, numbers in kinds:
        series = [
            Series(name=one.name, points=[(number, _main_number(one.result))])
            for one, number in zip(records, numbers, strict=True)
        ]
        title = f"Accuracy against {what}"
        yield Draft(title=title, x=x, y=f"{metric}, percent", series=series, note=note, log_x=True)


def _snapshots(snapshots: Sequence[Result]) -> Iterator[Draft]:
    """Yield the main number over the epochs of pre-training, a line per run and kind of result."""
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for model, kind, (first, *_) in alike(snapshots, run_of):
        metric = first.primary_metric
        if metric in first.metrics:
            name = ", ".join(filter(None, [curve_of(model), kind]))
            point = (float(model.epochs or 0), first.metrics[metric])
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
    curves = {one.name: one.details.get("top1_after_each_pass", ()) for one in records}
    return Draft(
        title="Accuracy after each pass",
        x="pass over the training images",
        y="accuracy on test, percent",
        series=[Series(name=name, points=[*enumerate(of, 1)]) for name, of in curves.items()],
        note="The last pass is the result; none is chosen.",
    )


def _losses(records: Sequence[Named]) -> Draft:
    """Return the training loss of tasks that train the network."""
    curves = {one.name: one.details.get("training", {}).get("curve", ()) for one in records}
    series = [Series(name=name, points=curve) for name, curve in curves.items()]
    return Draft(title="Training loss", x="step", y="loss", series=series, markers=False)
