"""Charts, tables and pictures of each task, from the details of its records."""

import base64
import binascii
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.report_parts.charts import Draft, line_charts
from benchmarks.report_parts.document import (
    Chart,
    Fold,
    Gallery,
    Image,
    Sheet,
    jpeg_address,
    sheet,
)
from benchmarks.results.numbers import Number, blocks
from benchmarks.results.overview import curve_of
from benchmarks.results.records import Run, grouped, plural, schedule_words
from transfer.galleries.tile import CAPTIONS, gallery_folder

SEARCHES = (
    ("val_accuracy", "learning_rate", "accuracy on val, percent"),
    ("held_out_top1", "head_rate", "top-1 on held-out images, percent"),
    ("held_out_AP", "learning_rate", "AP on held-out images"),
    ("held_out_mIoU", "learning_rate", "mIoU on held-out images"),
    ("mean_cross_validated_AP", "", "cross-validated AP, mean over classes"),
)
"""Details of a search by its setting: scores, the chosen setting, and words for the scores."""
SIZES = {"AP": "AP", "AP50": "AP50", "AP75": "AP75"}
SIZES |= {"APs": "small", "APm": "medium", "APl": "large"}
"""Columns of average precision by their names in the records."""
KINDS = {"bbox": "boxes", "segm": "masks", "keypoints": "keypoints"}
PER_CLASS = {"accuracy_per_class": "Accuracy by class", "IoU_per_class": "IoU by class"}
MAX_COLUMNS = 6
"""Checkpoints next to each other in one table."""
MAX_RECORDS, MAX_QUERIES = 2, 6
"""Records of one task whose pictures are shown, those of the best checkpoints; and queries."""
Named = tuple[str, Run]
"""A record behind a name that no other record of the task has."""


def task_folds(folder: Path, done: Sequence[Run], snapshots: Iterable[Number]) -> list[Fold]:
    """Return charts, tables and pictures of each task whose records contain some."""
    runs = grouped((run.task, run) for run in done)
    curves = grouped((number.task, number) for number in snapshots if number.score)
    folds = []
    for task in dict.fromkeys([*runs, *curves]):
        records = named_records(runs.get(task, []))
        try:
            parts: list[Gallery | Chart | Sheet | str] = [
                *_galleries(folder, records),
                *_queries(records),
            ]
            parts += line_charts([*_charts(records), *_curves(curves.get(task, []))])
            parts += [*_sizes(records), *_classes(records), *_corruptions(records)]
            parts += _confusions(records)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            what = f"have a shape that this page cannot read ({type(error).__name__}: {error})"
            parts = [f"Details of a record of {task} {what}."]
        if parts:
            unread = "Details that cannot be read"
            titles = (unread if isinstance(part, str) else part.title for part in parts)
            count = plural(len(records), "result") if records else "snapshots only"
            text = "; ".join(dict.fromkeys(title.partition(":")[0] for title in titles if title))
            first = records[0][1] if records else curves[task][0].runs[0]
            folds.append((first.heading, task, Fold(task, text, count, parts)))
    return [fold for *_, fold in sorted(folds, key=lambda entry: entry[:2])]


def named_records(runs: Iterable[Run]) -> list[Named]:
    """Return the records of a task with their names, those of the best checkpoint first.

    A name is that of the backbone, and what distinguishes its records.
    """
    best_first = sorted(runs, key=_main_number, reverse=True)
    named = []
    for run in best_first:
        others = [_traits(other) for other in best_first if other.backbone == run.backbone]
        traits = zip(_traits(run), *others, strict=True)
        differing = ", ".join(own for own, *values in traits if {own} != {*values})
        named.append((f"{run.label} ({differing})" if differing else run.label, run))
    return named


def _traits(run: Run) -> tuple[str, ...]:
    """Return what may distinguish records of one backbone and task, in words."""
    weights = f"weights {run.sha256[:8]}"
    seed = f"seed {run.seed}"
    return run.protocol, schedule_words(run.schedule), seed, weights, *run.conditions


def _main_number(run: Run) -> float:
    """Return the main number; below all others if the record has none."""
    return run.metrics.get(run.primary_metric, -math.inf)


def _charts(records: Sequence[Named]) -> Iterator[Draft]:
    """Yield the charts of a task."""
    for scores, chosen, y in SEARCHES:
        yield _search(records, scores, chosen, y)
    severities = {}
    for name, run in records:
        kinds = run.details.get("top1", {}).values()
        values = grouped((float(s), value) for kind in kinds for s, value in kind.items())
        severities[name] = [(severity, fmean(own)) for severity, own in sorted(values.items())]
    title = "Accuracy by severity of the corruption"
    yield Draft(title=title, x="severity", y="top-1, percent", series=severities)
    sizes = {n: run.record.backbone.get("num_parameters", math.nan) / 1e6 for n, run in records}
    if len({size for size in sizes.values() if math.isfinite(size)}) > 1:
        yield Draft(
            title="Accuracy against parameters",
            x="parameters, millions",
            y=f"{records[0][1].primary_metric}, percent",
            series={name: [(sizes[name], _main_number(run))] for name, run in records},
            log_x=True,
        )
    yield Draft(
        title="Accuracy after each pass",
        x="pass over the training images",
        y="accuracy on test, percent",
        series={n: [*enumerate(r.details.get("top1_after_each_pass", ()), 1)] for n, r in records},
        note="The last pass is the result; none is chosen.",
    )
    losses = {name: run.details.get("training", {}).get("curve", ()) for name, run in records}
    yield Draft(title="Training loss", x="step", y="loss", series=losses, markers=False)


def _search(records: Sequence[Named], scores: str, chosen: str, y: str) -> Draft:
    """Return the chart of a search over learning rates or costs."""
    series, rings, num_diverged = {}, {}, 0
    for name, run in records:
        points = sorted(
            (float(x), score)
            for x, score in run.details.get(scores, {}).items()
            if score is not None
        )
        series[name] = [(x, score) for x, score in points if score >= 0]
        num_diverged += len(points) - len(series[name])
        value = run.details.get(chosen)
        if value and series[name]:  # rates are stored with few digits
            rings[name] = min((x for x, _ in series[name]), key=lambda x: abs(x - value))
    setting = "learning rate" if chosen else "cost"
    note = "Ring: chosen. " if rings else ""
    note += "Shaded: edges of the search, beyond which the best may lie."
    note += f" Diverged and left out: {num_diverged}." if num_diverged else ""
    title = f"Search over the {setting}"
    more: dict[str, Any] = {"chosen": rings, "note": note, "log_x": True, "edges": True}
    return Draft(title=title, x=setting, y=y, series=series, **more)


def _curves(snapshots: Sequence[Number]) -> Iterator[Draft]:
    """Yield the main number over the epochs of pre-training, a line per run and kind of result."""
    main = [number for number in snapshots if number.metric == number.primary_metric]
    all_blocks = blocks(main)
    several_protocols = len({number.column for number in main}) > 1
    points = []
    for block in all_blocks:
        for number in block.numbers:
            words = [curve_of(number), *([block.heading.lower()] if len(all_blocks) > 1 else [])]
            words += [f"protocol {number.reading}"] if several_protocols else []
            run = number.runs[0]
            point = float(run.epochs or 0), run.metrics.get(number.metric, math.nan)
            points.append((number.metric, (", ".join(words), point)))
    for metric, named in grouped(points).items():
        series = {name: sorted(curve) for name, curve in grouped(named).items()}
        x, y = "epoch of pre-training", f"{metric}, percent"
        yield Draft(title="During pre-training", x=x, y=y, series=series)


def _sizes(records: Sequence[Named]) -> list[Sheet]:
    """Return average precision by kind, threshold and size of the objects."""
    rows = [
        [f"{name}, {KINDS.get(kind, kind)}", *(_text(values.get(key)) for key in SIZES)]
        for name, run in records
        for kind, values in run.details.get("precisions", {}).items()
    ]
    header = ["backbone", *SIZES.values()]
    return [sheet("Average precision by threshold and size", header, rows)] if rows else []


def _classes(records: Sequence[Named]) -> Iterator[Sheet]:
    """Yield the numbers of each class: a table per reading, a column per checkpoint."""
    readings = grouped((run.key, (name, run)) for name, run in records)
    for key, own in readings.items():
        tables: dict[str, dict[str, Mapping[str, float]]] = {}
        for name, run in own:
            for detail, title in PER_CLASS.items():
                if values := run.details.get(detail):
                    tables.setdefault(title, {})[name] = values
            for kind, values in run.details.get("precisions", {}).items():
                by_class = {k[3:]: v for k, v in values.items() if k.startswith("AP/")}
                if len(by_class) > 1:
                    title = f"Average precision of {KINDS.get(kind, kind)} by class"
                    tables.setdefault(title, {})[name] = by_class
            if choices := run.details.get("classes"):
                by_class = {label: choice["AP"] for label, choice in choices.items()}
                tables.setdefault("Average precision by class", {})[name] = by_class
        for title, columns in tables.items():
            note = _counted_over(own) if title == PER_CLASS["accuracy_per_class"] else ""
            full_title = f"{title}: {key}" if len(readings) > 1 else title
            yield _by_name(full_title, "class", columns, note, with_difference=True)


def _counted_over(records: Iterable[Named]) -> str:
    """Return what the numbers of classes are counted over, unless each image counts once."""
    stored = (run.details.get("classes_counted_over") for _, run in records)
    over = dict.fromkeys(filter(None, stored))
    return f"Counted over {' or '.join(over)}." if over else ""


def _corruptions(records: Sequence[Named]) -> list[Sheet]:
    """Return top-1 by kind of corruption, as the mean over its severities."""
    columns = {
        name: {kind: fmean(severities.values()) for kind, severities in kinds.items()}
        for name, run in records
        if (kinds := run.details.get("top1"))
    }
    title = "Top-1 by corruption, mean over severities"
    return [_by_name(title, "corruption", columns)] if columns else []


def _by_name(
    title: str,
    first: str,
    columns: Mapping[str, Mapping[str, float]],
    note: str = "",
    *,
    with_difference: bool = False,
) -> Sheet:
    """Return named numbers of several records, a column per record, the highest first.

    with_difference: for several records, the last column is the first minus the second.
    """
    shown = dict(list(columns.items())[:MAX_COLUMNS])
    names = dict.fromkeys(name for values in shown.values() for name in values)
    rows = {name: [values.get(name, math.nan) for values in shown.values()] for name in names}
    header = [first, *shown]
    if with_difference and len(shown) > 1:
        header.append("first minus second")
        rows = {name: [*values, values[0] - values[1]] for name, values in rows.items()}
    order = sorted(rows, key=lambda name: -rows[name][0] if math.isfinite(rows[name][0]) else 1.0)
    if num_more := len(columns) - len(shown):
        verb = "record is" if num_more == 1 else "records are"
        note = f"{note} {num_more} more {verb} not shown.".strip()
    return sheet(title, header, [[name, *map(_text, rows[name])] for name in order], note=note)


def _text(value: float | None) -> str:
    return f"{value:.1f}" if value is not None and math.isfinite(value) else "–"


def _confusions(records: Iterable[Named]) -> list[Sheet]:
    """Return the most confused classes of each checkpoint."""
    header = ("class", "taken for", "images", "of")
    sheets = [
        sheet(
            f"Most confused classes: {name}",
            header,
            [[str(pair[key]) for key in ("class", "taken_for", "images", "of")] for pair in pairs],
            left=2,
            note=_counted_over([(name, run)]),
        )
        for name, run in records
        if (pairs := run.details.get("most_confused"))
    ]
    return sheets[:MAX_COLUMNS]


def _galleries(folder: Path, records: Iterable[Named]) -> list[Gallery]:
    """Return the pictures of a task's best checkpoints, as far as their galleries are complete."""
    galleries: list[Gallery] = []
    for name, run in records:
        if len(galleries) == MAX_RECORDS:
            break
        if images := [*_images(gallery_folder(folder / run.file), run.finished)]:
            is_pair = run.heading == "Detection and segmentation"
            note = "Left the truth, right the prediction." if is_pair else ""
            kind = "gallery" if is_pair else "gallery small"
            galleries.append(Gallery(f"Pictures: {name}", images, note, kind))
    return galleries


def _images(folder: Path, finished: str) -> Iterator[Image]:
    """Yield the images of a record; those of an older record of the cell are left out."""
    try:
        lines = (folder / CAPTIONS).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        try:
            words = json.loads(line)
            # older galleries do not store it
            if words.get("record_finished", finished) != finished:
                continue
            content = (folder / Path(words["file"]).name).read_bytes()  # never a file elsewhere
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if source := jpeg_address(content):
            group, caption, name = (str(words.get(key, "")) for key in ("group", "caption", "name"))
            yield Image(source, f"{group}: {caption}" if group else caption, name=name)


def _queries(records: Sequence[Named]) -> list[Gallery]:
    """Return a few queries with their nearest images, a row each, of the best checkpoints."""
    galleries = []
    for name, run in records[:MAX_RECORDS]:
        rows = [
            [_neighbor(image, query) for image in (query, *query["neighbors"])]
            for query in run.details.get("queries", ())
        ]
        title = f"Nearest images: {name}"
        for row in evenly([row for row in rows if row[0].source and len(row) > 1], MAX_QUERIES):
            galleries.append(Gallery(title, row, kind="neighbors"))
            title = ""
    return galleries


def evenly(drawn: Sequence[Any], count: int) -> list[Any]:
    """Return at most `count` entries, evenly spread."""
    count = min(count, len(drawn))
    return [drawn[len(drawn) * index // count] for index in range(count)]


def _neighbor(image: Mapping[str, Any], query: Mapping[str, Any]) -> Image:
    """Return an image of a record; without a readable thumbnail its source is empty."""
    try:
        source = jpeg_address(base64.b64decode(image["jpeg_base64"], validate=True))
    except binascii.Error:
        source = ""
    if image is query:
        return Image(source, image["class"], "query", image["file"])
    is_same = image["class"] == query["class"]
    sign, group = ("✓", "same class") if is_same else ("✗", "other class")
    return Image(source, f"{sign} {image['class']}", group, image["file"])
