"""Charts, tables and pictures of each task, from the details of its records."""

import base64
import binascii
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks.report_parts.charts import Draft, line_charts
from benchmarks.report_parts.document import (
    Chart,
    Fold,
    Gallery,
    Image,
    Part,
    Sheet,
    jpeg_address,
    sheet,
)
from benchmarks.results.numbers import Number, main_numbers, rank, shared_heading
from benchmarks.results.overview import curve_of
from benchmarks.results.records import Run, grouped, plural
from benchmarks.results.tables import row_label
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
Record = tuple[str, Run]
Named = tuple[str, Number]
"""Record or number of a checkpoint, behind a name that no other checkpoint beside it has."""


class View(NamedTuple):
    """Results of one task that may be compared: one reading of it, one length, the same data."""

    title: str
    named: Sequence[Named]
    """One number of each checkpoint, the best first."""
    snapshots: Sequence[Number]


def task_folds(folder: Path, numbers: Iterable[Number], snapshots: Iterable[Number]) -> list[Fold]:
    """Return charts, tables and pictures of each task whose records contain some."""
    results = grouped((number.task, number) for number in main_numbers(numbers))
    curves = grouped((number.task, number) for number in main_numbers(snapshots))
    folds = []
    for task in dict.fromkeys([*results, *curves]):
        own, of_snapshots = results.get(task, []), curves.get(task, [])
        try:
            parts = _parts(folder, views_of(own, of_snapshots))
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            what = f"have a shape that this page cannot read ({type(error).__name__}: {error})"
            parts = [f"Details of a record of {task} {what}."]
        if parts:
            num_results = sum(len(number.runs) for number in own)
            count = plural(num_results, "result") if own else "snapshots only"
            heading = (own or of_snapshots)[0].heading
            folds.append((heading, task, Fold(task, _titles(parts), count, parts)))
    return [fold for *_, fold in sorted(folds, key=lambda entry: entry[:2])]


def views_of(numbers: Iterable[Number], snapshots: Iterable[Number] = ()) -> list[View]:
    """Return the results of a task by what they may be compared with, the paper's length first.

    Of a checkpoint with results under several conditions, the most frequent ones are shown.
    """
    results = grouped((number.runs[0].comparison, number) for number in numbers)
    curves = grouped((number.runs[0].comparison, number) for number in snapshots)
    views = []
    for comparison in dict.fromkeys([*results, *curves]):
        own, of_snapshots = results.get(comparison, []), curves.get(comparison, [])
        by_row = sorted(own, key=lambda number: number.row, reverse=True)
        checkpoints = {number.run.identity: number for number in by_row}.values()
        best_first = sorted(checkpoints, key=lambda one: (-_main_number(one), one.row))
        named = [(row_label(number, best_first), number) for number in best_first]
        every = [*own, *of_snapshots]
        order = min(rank(number.reasons, number.version) for number in every)
        view = View(f"{comparison.key}: {shared_heading(every)}", named, of_snapshots)
        views.append((order, view.title, view))
    return [view for *_, view in sorted(views, key=lambda entry: entry[:2])]


def _main_number(number: Number) -> float:
    """Return the main number; below all others if it is not finite."""
    return number.score.mean if number.score and number.score.finite else -math.inf


def _parts(folder: Path, views: Sequence[View]) -> list[Part]:
    """Return pictures of the best checkpoints, then charts and tables of each view."""
    firsts: dict[tuple[str, str], Named] = {}
    for name, number in (named for view in views for named in view.named):
        firsts.setdefault(number.run.identity, (name, number))
    records = _records(firsts.values())
    pictures: list[Part] = [*_galleries(folder, records), *_queries(records)]
    by_view = [(view, parts) for view in views if (parts := _parts_of(view))]
    if len(by_view) < 2:
        return pictures + [part for _, parts in by_view for part in parts]
    folds = [
        Fold(view.title, "", plural(len(view.named), "checkpoint"), parts, "family")
        for view, parts in by_view
    ]
    return [*pictures, folds[0]._replace(is_open=True), *folds[1:]]


def _parts_of(view: View) -> list[Part]:
    """Return the charts and tables of a view."""
    records = _records(view.named)
    drafts = [*_charts(records), *_against_parameters(view.named), *_curves(view.snapshots)]
    tables = [*_precisions(records), *_classes(view.named), *_corruptions(records)]
    return [*line_charts(drafts), *tables, *_confusions(records)]


def _records(named: Iterable[Named]) -> list[Record]:
    """Return one record of each checkpoint, that of the first of several seeds, by a name."""
    return [
        (f"{name}, seed {number.runs[0].seed}" if len(number.runs) > 1 else name, number.runs[0])
        for name, number in named
    ]


def _titles(parts: Iterable[Part]) -> str:
    """Return the titles of parts, without the names in them."""
    titles = []
    for part in (one for p in parts for one in (p.parts if isinstance(p, Fold) else [p])):
        if isinstance(part, str):
            titles.append("Details that cannot be read")
        elif isinstance(part, Chart | Gallery | Sheet):
            titles.append(part.title)
    return "; ".join(dict.fromkeys(title.partition(":")[0] for title in titles if title))


def _charts(records: Sequence[Record]) -> Iterator[Draft]:
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
    yield Draft(
        title="Accuracy after each pass",
        x="pass over the training images",
        y="accuracy on test, percent",
        series={n: [*enumerate(r.details.get("top1_after_each_pass", ()), 1)] for n, r in records},
        note="The last pass is the result; none is chosen.",
    )
    losses = {name: run.details.get("training", {}).get("curve", ()) for name, run in records}
    yield Draft(title="Training loss", x="step", y="loss", series=losses, markers=False)


def _against_parameters(named: Sequence[Named]) -> Iterator[Draft]:
    """Yield the main number against the number of parameters, if the networks differ in it."""
    points = {
        name: (number.run.record.backbone.get("num_parameters", math.nan) / 1e6, number)
        for name, number in named
    }
    if len({millions for millions, _ in points.values() if math.isfinite(millions)}) > 1:
        yield Draft(
            title="Accuracy against parameters",
            x="parameters, millions",
            y=f"{named[0][1].metric}, percent",
            series={name: [(size, _main_number(one))] for name, (size, one) in points.items()},
            log_x=True,
        )


def _search(records: Sequence[Record], scores: str, chosen: str, y: str) -> Draft:
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
    """Yield the main number over the epochs of pre-training, a line per run."""
    epochs = [(one, float(one.runs[0].epochs or 0)) for one in snapshots]
    points = grouped((curve_of(one), (epoch, _main_number(one))) for one, epoch in epochs)
    if points:
        series = {name: sorted(curve) for name, curve in points.items()}
        x, y = "epoch of pre-training", f"{snapshots[0].metric}, percent"
        yield Draft(title="During pre-training", x=x, y=y, series=series)


def _precisions(records: Sequence[Record]) -> list[Sheet]:
    """Return average precision by kind, threshold and size of the objects."""
    rows = [
        [f"{name}, {KINDS.get(kind, kind)}", *(_text(values.get(key)) for key in SIZES)]
        for name, run in records
        for kind, values in run.details.get("precisions", {}).items()
    ]
    header = ["backbone", *SIZES.values()]
    return [sheet("Average precision by threshold and size", header, rows)] if rows else []


def _classes(named: Sequence[Named]) -> Iterator[Sheet]:
    """Yield the numbers of each class, the mean over seeds: a column per checkpoint."""
    tables: dict[str, dict[str, Mapping[str, float]]] = {}
    for name, number in named:
        of_seeds = grouped(entry for run in number.runs for entry in _by_class(run))
        for title, values in of_seeds.items():
            classes = grouped(entry for own in values for entry in own.items())
            means = {label: fmean(own) for label, own in classes.items()}
            tables.setdefault(title, {})[name] = means
    for title, columns in tables.items():
        is_accuracy = title == PER_CLASS["accuracy_per_class"]
        note = _counted_over(one.runs[0] for _, one in named) if is_accuracy else ""
        yield _by_name(title, "class", columns, note, with_difference=True)


def _by_class(run: Run) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Yield the numbers of each class that a record holds, by the title of their table."""
    for detail, title in PER_CLASS.items():
        if values := run.details.get(detail):
            yield title, values
    for kind, values in run.details.get("precisions", {}).items():
        by_class = {key[3:]: value for key, value in values.items() if key.startswith("AP/")}
        if len(by_class) > 1:
            yield f"Average precision of {KINDS.get(kind, kind)} by class", by_class
    if choices := run.details.get("classes"):
        yield "Average precision by class", {k: choice["AP"] for k, choice in choices.items()}


def _counted_over(runs: Iterable[Run]) -> str:
    """Return what the numbers of classes are counted over, unless each image counts once."""
    stored = (run.details.get("classes_counted_over") for run in runs)
    over = dict.fromkeys(filter(None, stored))
    return f"Counted over {' or '.join(over)}." if over else ""


def _corruptions(records: Sequence[Record]) -> list[Sheet]:
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
        verb = "checkpoint is" if num_more == 1 else "checkpoints are"
        note = f"{note} {num_more} more {verb} not shown.".strip()
    return sheet(title, header, [[name, *map(_text, rows[name])] for name in order], note=note)


def _text(value: float | None) -> str:
    return f"{value:.1f}" if value is not None and math.isfinite(value) else "–"


def _confusions(records: Iterable[Record]) -> list[Sheet]:
    """Return the most confused classes of each checkpoint."""
    header = ("class", "taken for", "images", "of")
    sheets = [
        sheet(
            f"Most confused classes: {name}",
            header,
            [[str(pair[key]) for key in ("class", "taken_for", "images", "of")] for pair in pairs],
            left=2,
            note=_counted_over([run]),
        )
        for name, run in records
        if (pairs := run.details.get("most_confused"))
    ]
    return sheets[:MAX_COLUMNS]


def _galleries(folder: Path, records: Iterable[Record]) -> list[Gallery]:
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


def _queries(records: Sequence[Record]) -> list[Gallery]:
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
