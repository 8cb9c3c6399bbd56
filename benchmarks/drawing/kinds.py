"""The kinds of figures, one function each.

Each function gets the results and the arguments of an entry of figures.yaml. It yields a picture
for every group of results that may share one, and messages on results that cannot be drawn.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise, product
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks.drawing.logs import MAX_POINTS, TrainingLog, curve_points
from benchmarks.drawing.panels import (
    Bars,
    Histogram,
    Histograms,
    Lines,
    Panel,
    PublishedPoint,
    Series,
)
from benchmarks.drawing.selection import (
    NO_SETTING,
    VIEW_TASKS,
    MethodLine,
    PictureKey,
    Points,
    best_points,
    distinct,
    is_published,
    is_unchanged,
    line_key,
    mean_point,
    mean_points,
    members,
    newest,
    number_of,
    picture_key,
)
from benchmarks.results.differences import difference
from benchmarks.results.numbers import score_of_runs
from benchmarks.results.records import Backbone, Results, Run
from benchmarks.words import grouped
from transfer.datasets.catalog import DATASETS

ACCURACY_TASKS = tuple(
    f"{dataset}_{task}"
    for dataset in ("in100", "cifar10", "cifar100")
    for task in ("linear", "knn")
)
SPACES = {"embedding": "the projector's output", "feature": "the backbone's output"}
"""Outputs with compared views; the papers show the first."""


class Inputs(NamedTuple):
    """Everything that figures are drawn from."""

    results: Results
    logs: Sequence[TrainingLog]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Panels with their numbers, and the content of the caption."""

    panels: Sequence[Panel]
    runs: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    """The shown results by label."""
    backbones: Mapping[str, Sequence[Backbone]] = field(default_factory=dict)
    """The backbones of the shown logs by label, in a picture without results."""
    header: Sequence[str]
    """Header of the CSV file."""
    rows: Sequence[Sequence[str]]
    findings: Sequence[str] = ()
    """Sentences of the caption on the shown results."""
    swept: Sequence[str] = ()
    """Settings that differ along a line."""
    labels: Iterable[str] = ()
    """Labels of the paper's figure, to name those without a run."""
    exact: bool
    """Whether all results are from the paper's recipes under its protocol."""
    rank: tuple[Any, ...] = ()
    """Sort key of pictures of one figure; the highest is drawn."""


Drawings = Iterator[Picture | str]
"""Pictures, and messages on what cannot be drawn."""


def sweep(
    inputs: Inputs,
    *,
    setting: str,
    symbol: str,
    lines: Sequence[MethodLine],
    levels: Sequence[MethodLine] = (),
    published: Sequence[PublishedPoint] = (),
    log_x: bool = False,
    tasks: Sequence[str] = ACCURACY_TASKS,
    metric: str = "top1",
    y_label: str = "",
) -> Drawings:
    """Draw a metric over a setting of pre-training.

    There is a line per method and a point per value.

    setting: the setting on the x axis, such as config.num_keys. symbol: its label. levels:
    horizontal lines for methods without this setting. published: points of the paper, shown only
    next to runs of its recipes. y_label: required for metrics other than the accuracy of the task.
    """
    for key, results in _swept_results(inputs, setting, tasks, metric).items():
        swept_lines = _with_points(lines, results, setting)
        if not swept_lines:
            continue
        swept_runs = [(line, run) for line, points in swept_lines for run in members(points)]
        exact = all(line.is_published(run) for line, run in swept_runs)
        horizontal = []
        for level in levels:
            candidates = [
                run
                for run in results
                if (level.is_published(run) if exact else _shares(level.shared, run, swept_runs))
            ]
            horizontal += _with_points([level], candidates, NO_SETTING)
        all_lines = [*swept_lines, *horizontal]
        series = [Series(line.label, mean_points(points, metric)) for line, points in all_lines]
        panel = Lines(
            symbol,
            y_label or accuracy_label(key.task),
            series[: len(swept_lines)],
            series[len(swept_lines) :],
            published if exact else (),
            log_x,
        )
        yield Picture(
            panels=[panel],
            runs={line.label: members(points) for line, points in all_lines},
            header=("series", symbol, metric, "standard_deviation", "runs", "recipes"),
            rows=[
                (
                    line.label,
                    *point.csv_fields(),
                    " ".join(dict.fromkeys(r.backbone.recipe or r.backbone.name for r in runs)),
                )
                for line, (_, points) in zip(series, all_lines, strict=True)
                for point, runs in zip(line.points, points.values(), strict=True)
            ],
            swept=[setting, *(name for line, _ in all_lines for name in line.follows)],
            labels=[line.label for line in (*lines, *levels)],
            exact=exact,
            rank=(
                len(swept_lines),
                sum(len(points) for _, points in swept_lines),
                newest(run for _, run in swept_runs),
            ),
        )


def _swept_results(
    inputs: Inputs, setting: str, tasks: Sequence[str], metric: str
) -> dict[PictureKey, list[Run]]:
    """Return the results with this metric, grouped by picture."""
    length = "" if setting == "epochs" else None
    return grouped(
        (picture_key(run, length=length), run)
        for run in inputs.results.succeeded
        if run.task in tasks and (metric in run.metrics or metric in run.details)
    )


def _with_points(
    lines: Iterable[MethodLine], results: Sequence[Run], setting: str
) -> list[tuple[MethodLine, Points]]:
    """Return the lines that have points, with their points."""
    with_points = [(line, line.points(results, setting)) for line in lines]
    return [(line, points) for line, points in with_points if points]


def _shares(names: Iterable[str], run: Run, line_runs: Iterable[tuple[MethodLine, Run]]) -> bool:
    """Return whether a run shares these settings with all others."""
    return all(
        run.backbone.settings.get(name) == line_run.backbone.settings.get(name)
        for name in names
        for _, line_run in line_runs
    )


def tradeoff(
    inputs: Inputs,
    *,
    across: Mapping[str, Any],
    upward: Mapping[str, Any],
    x_label: str,
    symbol: str,
) -> Drawings:
    """Draw two sweeps of one setting against each other.

    Only common backbones are drawn. across, upward: arguments of the sweeps for the x axis and the
    y axis. symbol: the setting; the points are labeled with its values.
    """
    setting, metric = across["setting"], across["metric"]
    x_groups = _swept_results(inputs, setting, across["tasks"], metric)
    y_groups = _swept_results(inputs, setting, ACCURACY_TASKS, "top1")
    for xs, (y_key, ys) in product(x_groups.values(), y_groups.items()):
        x_lines = _with_points(across["lines"], xs, setting)
        x_lines += _with_points(across["levels"], xs, NO_SETTING)
        views = [run for _, points in x_lines for run in members(points)]
        values = grouped((run.backbone.sha256, number_of(run, metric)) for run in views)
        common = [run for run in ys if run.backbone.sha256 in values]
        lines = _with_points(upward["lines"], common, setting)
        lines += _with_points(upward["levels"], common, NO_SETTING)
        if not any(len(points) > 1 for _, points in lines):
            continue
        series = []
        for line, points in lines:
            means, labels = [], []
            for value, runs in points.items():
                weights = {run.backbone.sha256 for run in runs}
                x = fmean(x for sha256 in weights for x in values[sha256])
                means.append(mean_point(x, [number_of(run, "top1") for run in runs]))
                labels.append(line.label if math.isnan(value) else f"{value:g}")
            series.append(Series(line.label, means, labels))
        yield Picture(
            panels=[Lines(x_label, accuracy_label(y_key.task), series)],
            runs={line.label: members(points) for line, points in lines},
            header=("series", symbol, metric, "top1", "runs"),
            rows=[
                (line.label, label, f"{point.x:.4f}", f"{point.y:.4f}", str(point.num_runs))
                for line in series
                for label, point in zip(line.point_labels, line.points, strict=True)
            ],
            findings=[
                f"Numbers next to the points are {symbol}.",
                f"Statistics of views: {views[0].task}, protocol {views[0].protocol}.",
            ],
            swept=[setting],
            exact=all(line.is_published(r) for line, points in lines for r in members(points)),
        )


def snapshot_curves(inputs: Inputs, *, task: str, variants: Mapping[str, str]) -> Drawings:
    """Draw the accuracy of snapshots over epochs, a line per variant.

    variants: recipes by label, from the fastest to the slowest according to the paper.
    """

    def is_own(run: Run) -> bool:
        return is_published(run, variants.values(), task)

    groups = grouped(
        (picture_key(run, length=str(run.backbone.settings.get("epochs", ""))), run)
        for run in inputs.results.snapshots
        if run.backbone.recipe in variants.values() and run.task == task and not run.failure
    )
    for results in groups.values():
        curves = {}
        for label, recipe in variants.items():
            of_recipe = [run for run in results if run.backbone.recipe == recipe]
            placed = [(float(e), run) for run in of_recipe if (e := run.backbone.epochs)]
            if curve := best_points(placed, (), is_own, 2):
                curves[label] = curve
        if not curves:
            continue
        series = [Series(label, mean_points(curve, "top1")) for label, curve in curves.items()]
        runs = {label: members(curve) for label, curve in curves.items()}
        yield Picture(
            panels=[Lines("epoch of pre-training", accuracy_label(task), series)],
            runs=runs,
            header=("series", "epoch", "top1", "standard_deviation", "runs"),
            rows=[(line.label, *point.csv_fields()) for line in series for point in line.points],
            findings=_order(curves, task),
            labels=variants,
            exact=all(is_own(run) for own_runs in runs.values() for run in own_runs),
            rank=(len(curves), newest(results)),
        )


def _order(curves: Mapping[str, Points], task: str) -> list[str]:
    """Return a sentence on the order of the curves' means.

    The means are over the epochs that all curves have.
    """
    common = sorted(set[float].intersection(*(set(curve) for curve in curves.values())))
    if len(curves) < 2 or not common:
        return []
    scores = {}
    for label, curve in curves.items():
        score = score_of_runs([run for x in common for run in curve[x]], "top1")
        # the deviation of these runs is mostly over epochs, so it is not an error over seeds
        scores[label] = replace(score, std=0.0, runs=1)
    ordered = sorted(scores, key=lambda label: -scores[label].mean)
    numbers = ", ".join(f"{label} {scores[label].mean:.1f}" for label in ordered)
    significant = [
        f"{high} above {low}"
        for high, low in combinations(ordered, 2)
        if difference(scores[high], scores[low], task).is_significant
    ]
    return [
        f"Means over the epochs {range_words(common)}, from the highest: {numbers}; "
        f"significantly different: {', '.join(significant) or 'none'}; "
        f"the paper's order, from the fastest: {', '.join(curves)}."
    ]


def log_curves(
    inputs: Inputs,
    *,
    metrics: Mapping[str, str],
    methods: Mapping[str, str],
    recipes: Mapping[str, str],
    last_step_only: Mapping[str, Sequence[str]],
    same: str,
    stated_ends: Mapping[str, float],
) -> Drawings:
    """Draw logged metrics over epochs, a panel per metric.

    There is a line per method. metrics: label of the y axis by name. methods: label by method.
    recipes: the paper's recipes by method. last_step_only: metrics, by method, that are only
    measured at the last step of a log interval. same: setting that all runs must share because it
    changes the meaning of a metric. stated_ends: the paper's value of the last metric at the end of
    the run, by method.
    """
    # a log stored under two names counts once
    distinct_logs = {json.dumps([log.made_by, log.lines], default=str): log for log in inputs.logs}
    logs = [log for log in distinct_logs.values() if log.backbone.method in methods]
    groups: dict[tuple[str, str, str, str], list[TrainingLog]] = {}
    for log in logs:
        if missing := [name for name in metrics if not any(name in line for line in log.lines)]:
            option = same.rpartition(".")[2].replace("_", "-")
            yield (
                f"the log of {log.name} has no {', '.join(missing)}; pre-train it with the "
                f"--{option} of the other method (above 0)"
            )
            continue
        backbone, settings = log.backbone, log.backbone.settings
        group = backbone.data, backbone.arch, str(settings.get("epochs")), str(settings.get(same))
        groups.setdefault(group, []).append(log)
    last_steps = "".join(
        f"; {methods[method]}'s {' and '.join(metrics[name] for name in names)} is only measured "
        "at its last step"
        for method, names in last_step_only.items()
    )
    stated = ", ".join(f"{methods[method]} {value:g}" for method, value in stated_ends.items())
    for group, group_logs in groups.items():
        by_method = grouped((log.backbone.method, log) for log in group_logs)
        if by_method.keys() != methods.keys():
            continue
        # largest group of logs with equal settings
        largest = {
            label: max(grouped((_log_settings(log), log) for log in by_method[m]).values(), key=len)
            for m, label in methods.items()
        }
        series = {
            name: [
                Series(
                    label,
                    curve_points(
                        largest[label], name, last_step=name in last_step_only.get(method, ())
                    ),
                )
                for method, label in methods.items()
            ]
            for name in metrics
        }
        backbones = {label: [log.backbone for log in logs] for label, logs in largest.items()}
        shown = [backbone for of_label in backbones.values() for backbone in of_label]
        counts = ", ".join(f"{label} {len(logs)}" for label, logs in largest.items())
        seeds = [log.made_by["seed"] for logs in largest.values() for log in logs]
        yield Picture(
            panels=[
                Lines("epoch", label, series[name], title=f"({letter})")
                for letter, (name, label) in zip("abcdefgh", metrics.items(), strict=False)
            ],
            backbones=backbones,
            header=("metric", "series", "epoch", "mean", "standard_deviation", "runs"),
            rows=[
                (name, line.label, *point.csv_fields())
                for name, lines in series.items()
                for line in lines
                for point in line.points
            ],
            findings=[
                f"Number of runs: {counts}; {seed_words(seeds)}.",
                f"All with {same.rpartition('.')[2].replace('_', ' ')} "
                f"{shown[0].settings.get(same)}.",
                "Each point is a mean over the steps of a log interval (of several intervals, "
                f"if there are more than {MAX_POINTS}) and is plotted at their center"
                f"{last_steps}.",
                f"The paper states for the end, {list(metrics.values())[-1]}: {stated}; ours "
                "are next to it in tables/stated.md.",
            ],
            exact=all(b.recipe in recipes.values() and is_unchanged(b) for b in shown),
            rank=group,
        )


def _log_settings(log: TrainingLog) -> str:
    """Return a key that is equal for runs with equal settings."""
    settings = [log.backbone.precision, log.backbone.settings]
    return json.dumps(settings, sort_keys=True, default=str)


def histograms(
    inputs: Inputs,
    *,
    statistic: str,
    x_label: str,
    methods: Sequence[MethodLine],
    lower: Sequence[str],
    stated_views: int,
    stated_images: int,
) -> Drawings:
    """Draw one statistic of an image's views as histograms over images.

    There is a histogram per method. statistic: name of the histogram in the records' details.
    lower: labels of two methods; the first has the lower mean in the paper.
    """

    def is_own(run: Run) -> bool:
        return any(method.is_published(run) for method in methods)

    groups = grouped(
        (picture_key(run), run)
        for run in inputs.results.succeeded
        if run.task in VIEW_TASKS and statistic in run.details.get("histograms", {})
    )
    for key, group in groups.items():
        # of each method, the newest result; results of the paper's recipes have precedence
        selected = {
            method.label: max(fitting, key=lambda run: (is_own(run), run.record.finished))
            for method in methods
            if (fitting := [run for run in group if method.has(run)])
        }
        if len(selected) < 2:
            continue
        stored = {label: run.details["histograms"][statistic] for label, run in selected.items()}
        hists = [
            Histogram(label, hist["edges"], hist["counts"], selected[label].details[statistic])
            for label, hist in stored.items()
        ]
        first = next(iter(selected.values())).details
        counts = sorted({int(sum(hist.counts)) for hist in hists})
        ordered = sorted(hists, key=lambda hist: -hist.mean)
        means = ", ".join(
            f"{hist.label} {hist.mean:#.3g} ± {2 * hist.error:.2g}" for hist in ordered
        )
        yield Picture(
            panels=[Histograms(x_label, hists)],
            runs={label: [run] for label, run in selected.items()},
            header=("series", "from", "to", "images"),
            rows=[
                (hist.label, f"{low:.6g}", f"{high:.6g}", f"{count:g}")
                for hist in hists
                for (low, high), count in zip(pairwise(hist.edges), hist.counts, strict=True)
                if count
            ],
            findings=[
                f"{first.get('num_views', '?')} random views of each of "
                f"{' or '.join(map(str, counts))} images (in the paper {stated_views} of "
                f"{stated_images:,}), {SPACES.get(key.space, '')} at unit length.",
                f"Means ± two standard errors over images: {means}.",
                f"In the paper, {lower[0]} is below {lower[1]}.",
            ],
            labels=[method.label for method in methods],
            exact=all(map(is_own, selected.values())),
            rank=(key.space == "embedding", len(selected), newest(selected.values())),
        )


def head_shares(inputs: Inputs, *, recipe: str, keys: Mapping[str, str]) -> Drawings:
    """Draw the mean contribution of each head to correct predictions.

    keys: key in TASKS of the paper's linear probes, by task id.
    """

    def is_own(run: Run) -> bool:
        return run.task in keys and is_published(run, [recipe], keys[run.task])

    networks = grouped(
        (_network_key(run), run)
        for run in inputs.results.succeeded
        # only networks with several heads have contributions
        if run.task.endswith("_linear") and run.backbone.method == "loocpp"
        if "head_shares" in run.details
    )
    for results in networks.values():
        means = grouped(
            ((run.task, run.record.protocol["hash"], picture_key(run).data), run) for run in results
        )
        tasks = grouped((task, distinct(runs)) for (task, *_), runs in sorted(means.items()))
        panels, rows, findings, shown_runs = [], [], [], []
        for task, groups in tasks.items():
            # runs of the paper's recipe, or the largest and newest group that may be averaged
            runs = max(
                groups,
                key=lambda candidates: (
                    all(map(is_own, candidates)),
                    len(candidates),
                    newest(candidates),
                ),
            )
            # the first head is invariant to all augmentations, each other one is sensitive to one
            backbone = runs[0].backbone
            names = backbone.heads or ("invariant", *backbone.settings["config.designated"])
            shares = [
                mean_point(index, [run.details["head_shares"][index] for run in runs])
                for index in range(len(names))
            ]
            bits = -sum(share.y * math.log2(share.y) for share in shares if share.y > 0)
            title = dataset_title(task)
            panels.append(
                Bars("share in correct predictions", names, shares, f"{title}: {bits:.2f} bits")
            )
            details = runs[0].details
            counts = details["num_images_with_shares"], details["num_test"]
            findings.append(
                f"{title}: the entropy of the mean shares is {bits:.2f} of at most "
                f"{math.log2(len(names)):.2f} bits, {seed_words(run.seed for run in runs)}; "
                f"over {counts[0]:,} of {counts[1]:,} test images (correctly predicted)."
            )
            rows += [
                (task, name, *share.csv_fields(6)[1:], f"{bits:.4f}")
                for name, share in zip(names, shares, strict=True)
            ]
            shown_runs += runs
        yield Picture(
            panels=panels,
            runs={"LooC++": shown_runs},
            header=("task", "head", "share", "standard_deviation", "runs", "entropy_bits"),
            rows=rows,
            findings=findings,
            exact=all(map(is_own, shown_runs)),
            rank=(len(tasks), newest(shown_runs)),
        )


def _network_key(run: Run) -> tuple[object, ...]:
    """Return a key: probes with equal keys share a picture.

    It has no protocol hash, since this differs between tasks.
    """
    key = picture_key(run)
    return run.backbone.sha256, run.protocol, key.schedule, key.evaluation, line_key(run, ())[1:]


def dataset_title(task: str) -> str:
    """Return the title of a task's dataset."""
    return DATASETS[task.partition("_")[0]].title


def accuracy_label(task: str) -> str:
    """Return the label of an axis with a task's top-1."""
    method = {"linear": "linear top-1", "knn": "nearest-neighbor top-1"}
    return f"{dataset_title(task)} {method.get(task.partition('_')[2], 'top-1')} (%)"


def seed_words(seeds: Iterable[int]) -> str:
    """Return text such as "seed 0" or "seeds 0, 1", without duplicates."""
    distinct_seeds = sorted(set(seeds))
    noun = "seeds" if len(distinct_seeds) > 1 else "seed"
    return f"{noun} {', '.join(map(str, distinct_seeds))}"


def range_words(values: Sequence[float]) -> str:
    """Return the range of sorted values, such as "0 to 6"."""
    low, high = values[0], values[-1]
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


KINDS: Mapping[str, Callable[..., Drawings]] = {
    "sweep": sweep,
    "tradeoff": tradeoff,
    "snapshot_curves": snapshot_curves,
    "log_curves": log_curves,
    "histograms": histograms,
    "head_shares": head_shares,
}
"""Function of each kind of figure."""
