"""Charts of one task: searches, losses, severities of corruptions, costs, snapshots, seeds."""

import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from benchmarks.pages.blocks import conditions, schedule_words, sort_into_blocks
from benchmarks.pages.overview import curve_of, run_of
from benchmarks.pages.records import Result, grouped, machine
from benchmarks.report_parts.charts import Chart, Draft, line_charts

SEARCHES = (
    ("val_accuracy", "learning_rate", "accuracy on val, percent"),
    ("held_out_top1", "head_rate", "top-1 on held-out images, percent"),
    ("held_out_AP", "learning_rate", "AP on held-out images"),
    ("held_out_mIoU", "learning_rate", "mIoU on held-out images"),
    ("mean_cross_validated_AP", "", "cross-validated AP, mean over classes"),
)
"""Details of a search by its setting: scores, the chosen setting, and words for the scores."""
PASSES = "top1_after_each_pass"


Named = tuple[str, Result]
"""A result behind a name that no other record of the task has."""


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
        named.append((f"{result.model.label} ({', '.join(apart)})".removesuffix(" ()"), result))
    return named


def _traits(result: Result) -> tuple[str, ...]:
    """Return what may tell records of one backbone and task apart, in words."""
    return (
        result.protocol,
        schedule_words(result.schedule),
        f"seed {result.seed}",
        f"weights {result.model.sha256[:8]}",
        *conditions(result),
    )


def _main_number(result: Result) -> float:
    """Return the result's main number; below all others if the record has none."""
    return result.metrics.get(result.primary_metric, -math.inf)


def charts_of(records: Sequence[Named], snapshots: Sequence[Result]) -> list[Chart]:
    """Return the charts of a task for which its records hold the numbers.

    A backbone has the same color in all of them.
    """
    passes = {name: [*enumerate(one.details.get(PASSES, ()), 1)] for name, one in records}
    losses = {name: one.details.get("training", {}).get("curve", ()) for name, one in records}
    drafts = [
        *_searches(records),
        Draft(
            title="Accuracy by severity of the corruption",
            x="severity",
            y="top-1, percent",
            series={name: _severities(one) for name, one in records},
        ),
        *_costs(records),
        *_snapshots(snapshots),
        Draft(
            title="Accuracy after each pass",
            x="pass over the training images",
            y="accuracy on test, percent",
            series=passes,
            note="The last pass is the result; none is chosen.",
        ),
        Draft(title="Training loss", x="step", y="loss", series=losses, markers=False),
    ]
    return line_charts(drafts)


def _severities(one: Result) -> list[tuple[float, float]]:
    """Return top-1 by severity of the corruptions, as the mean over their kinds."""
    kinds = one.details.get("top1", {}).values()
    by_severity = grouped((float(s), value) for kind in kinds for s, value in kind.items())
    return [(severity, fmean(values)) for severity, values in sorted(by_severity.items())]


def _searches(records: Sequence[Named]) -> Iterator[Draft]:
    """Yield a chart for each kind of search."""
    for scores, chosen, words in SEARCHES:
        series, places, diverged = {}, {}, 0
        for name, one in records:
            found = sorted((float(rate), s) for rate, s in one.details.get(scores, {}).items())
            points = [(rate, score) for rate, score in found if score is not None and score >= 0]
            diverged += sum(score is not None and score < 0 for _, score in found)
            rates, value = [rate for rate, _ in points], one.details.get(chosen)
            # rates are stored with few digits
            if value and rates:
                places[name] = min(rates, key=lambda rate: abs(rate - value))
            series[name] = points
        setting = "learning rate" if chosen else "cost"
        ring = "Ring: chosen. " * bool(places)
        yield Draft(
            title=f"Search over the {setting}",
            x=setting,
            y=words,
            series=series,
            chosen=places,
            note=f"{ring}Shaded: edges of the search, beyond which the best may lie."
            + f" Diverged and left out: {diverged}." * bool(diverged),
            log_x=True,
            edges=True,
        )


def _costs(records: Sequence[Named]) -> Iterator[Draft]:
    """Yield accuracy against parameters and against speed, where the networks differ."""
    whole = [one.record for _, one in records]
    millions = [record.backbone.get("num_parameters", math.nan) / 1e6 for record in whole]
    if len({size for size in millions if math.isfinite(size)}) < 2:
        return
    kinds = [("parameters", "parameters, millions", "", millions)]
    sides = set.intersection(*(set(record.speed) for record in whole))
    machines = {machine(record) for record in whole}
    if sides and len(machines) == 1:
        side = max(sides, key=int)
        note = f"Network alone, without reading of images; {side} px; {machines.pop()}."
        rates = [record.speed[side] for record in whole]
        kinds.append(("speed", "images per second", note, rates))
    y = f"{records[0][1].primary_metric}, percent"
    for what, label, note, numbers in kinds:
        places = zip(records, numbers, strict=True)
        series = {name: [(x, _main_number(one))] for (name, one), x in places}
        yield Draft(
            title=f"Accuracy against {what}", x=label, y=y, series=series, note=note, log_x=True
        )


def _snapshots(snapshots: Sequence[Result]) -> Iterator[Draft]:
    """Yield the main number over the epochs of pre-training, a line per run and kind of result."""
    blocks = sort_into_blocks(snapshots, group_key=run_of)
    several_protocols = len({column for block in blocks for column in block.columns}) > 1
    points = []
    for block in blocks:
        for (model, (_, protocol)), (first, *_) in block.done.items():
            words = [curve_of(model), *[block.heading.lower()] * (len(blocks) > 1)]
            words += [f"protocol {protocol}"] * several_protocols
            metric = first.primary_metric
            if metric in first.metrics:
                point = float(model.epochs or 0), first.metrics[metric]
                points.append((metric, (", ".join(words), point)))
    for metric, named in grouped(points).items():
        curves = {name: sorted(curve) for name, curve in grouped(named).items()}
        y = f"{metric}, percent"
        yield Draft(title="During pre-training", x="epoch of pre-training", y=y, series=curves)
