"""Charts, tables and images of each task, from its records' details."""

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks.report_parts.charts import Chart, Points, line_charts
from benchmarks.report_parts.document import (
    Fold,
    Gallery,
    Image,
    Part,
    Sheet,
    jpeg_address,
    sheet,
)
from benchmarks.results.numbers import Number, by_comparison, main_numbers, shared_heading
from benchmarks.results.overview import curve_of, curve_positions
from benchmarks.results.records import Run
from benchmarks.results.tables import row_label
from benchmarks.words import grouped, plural
from transfer.frozen.rankme import RANKME
from transfer.galleries.tile import CAPTIONS, gallery_folder

SEARCHES = (
    ("val_accuracy", "learning_rate", "accuracy on val, percent"),
    ("held_out_top1", "head_rate", "top-1 on held-out images, percent"),
    ("held_out_AP", "learning_rate", "AP on held-out images"),
    ("held_out_mIoU", "learning_rate", "mIoU on held-out images"),
    ("mean_cross_validated_AP", "", "cross-validated AP, mean over classes"),
)
"""Details of each search: scores, chosen setting, axis label."""
SIZES = {"AP": "AP", "AP50": "AP50", "AP75": "AP75"}
SIZES |= {"APs": "small", "APm": "medium", "APl": "large"}
"""Columns of average precision by their names in the records."""
KINDS = {"bbox": "boxes", "segm": "masks", "keypoints": "keypoints"}
PER_CLASS = {"accuracy_per_class": "Accuracy by class", "IoU_per_class": "IoU by class"}
MAX_COLUMNS = 6
"""Maximum number of checkpoints in one table."""
MAX_RECORDS, MAX_QUERIES = 2, 6
"""Maximum number of records with images per task, and of queries."""
Record = tuple[str, Run]
Named = tuple[str, Number]
"""Record or number of a checkpoint, with a unique name."""


class View(NamedTuple):
    """Comparable results of one task."""

    title: str
    named: Sequence[Named]
    """One number of each checkpoint, the best first."""
    snapshots: Sequence[Number]


def task_folds(folder: Path, numbers: Iterable[Number], snapshots: Iterable[Number]) -> list[Fold]:
    """Return charts, tables and images of each task that has some."""
    results = grouped((number.task, number) for number in main_numbers(numbers))
    curves = grouped((number.task, number) for number in main_numbers(snapshots))
    folds = []
    for task in dict.fromkeys([*results, *curves]):
        task_numbers, of_snapshots = results.get(task, []), curves.get(task, [])
        if elements := _parts(folder, views_of(task_numbers, of_snapshots)):
            num_results = sum(len(number.runs) for number in task_numbers)
            count = plural(num_results, "result") if task_numbers else "snapshots only"
            heading = (task_numbers or of_snapshots)[0].heading
            folds.append(Fold(task, heading, count, elements))
    return sorted(folds, key=lambda fold: (fold.text, fold.name))


def views_of(numbers: Iterable[Number], snapshots: Iterable[Number]) -> list[View]:
    """Group a task's results into comparable ones, the paper's length first.

    If a checkpoint has results under several conditions, the most frequent conditions are shown.
    """
    results = by_comparison(numbers)
    curves = grouped((number.runs[0].comparison, number) for number in snapshots)
    views = []
    for comparison in dict.fromkeys([*results, *curves]):
        of_snapshots, group = curves.get(comparison, []), [*results.get(comparison, {}).values()]
        best_first = sorted(group, key=lambda number: (-_main_number(number), number.row))
        named = [(row_label(number, best_first), number) for number in best_first]
        all_numbers = [*group, *of_snapshots]
        order = min(number.reasons.sort_key for number in all_numbers)
        view = View(f"{comparison.key}: {shared_heading(all_numbers)}", named, of_snapshots)
        views.append((order, view.title, view))
    return [view for *_, view in sorted(views, key=lambda entry: entry[:2])]


def _main_number(number: Number) -> float:
    """Return the main number, or -inf if it is not finite."""
    return number.score.mean if number.score and number.score.finite else -math.inf


def _parts(folder: Path, views: Sequence[View]) -> list[Part]:
    """Return images of the best checkpoints, then each view's elements."""
    firsts: dict[tuple[str, str], Named] = {}
    for name, number in (named for view in views for named in view.named):
        firsts.setdefault(number.backbone.identity, (name, number))
    records = _records(firsts.values())
    pictures: list[Part] = [*_galleries(folder, records), *_queries(records)]
    by_view = [(view, elements) for view in views if (elements := _parts_of(view))]
    if len(by_view) < 2:
        return pictures + [element for _, elements in by_view for element in elements]
    folds = [
        Fold(view.title, "", plural(len(view.named), "checkpoint"), elements, "family")
        for view, elements in by_view
    ]
    return [*pictures, folds[0]._replace(is_open=True), *folds[1:]]


def _parts_of(view: View) -> list[Part]:
    """Return the charts and tables of a view."""
    records = _records(view.named)
    charts = [*_charts(records), *_against_parameters(view.named), *_curves(view.snapshots)]
    tables = [*_precisions(records), *_classes(view.named)]
    return [*line_charts(charts), *tables, *_confusions(records)]


def _records(named: Iterable[Named]) -> list[Record]:
    """Return one record of each checkpoint (the first seed) with its name."""
    return [
        (f"{name}, seed {number.runs[0].seed}" if len(number.runs) > 1 else name, number.runs[0])
        for name, number in named
    ]


def _charts(records: Sequence[Record]) -> Iterator[Chart]:
    """Yield the charts of a task."""
    for scores, chosen, y in SEARCHES:
        yield _search(records, scores, chosen, y)
    severities = {}
    for name, run in records:
        kinds = run.details.get("top1", {}).values()
        values = grouped((float(s), value) for kind in kinds for s, value in kind.items())
        severities[name] = [
            (severity, fmean(severity_values))
            for severity, severity_values in sorted(values.items())
        ]
    title = "Accuracy by severity of the corruption"
    yield Chart(title=title, x="severity", y="top-1, percent", series=severities)
    yield Chart(
        title="Accuracy after each epoch",
        x="epoch",
        y="accuracy on test, percent",
        series={n: [*enumerate(r.details.get("top1_after_each_pass", ()), 1)] for n, r in records},
        note="The result is the last epoch, not the best one.",
    )
    losses = {name: run.details.get("training", {}).get("curve", ()) for name, run in records}
    yield Chart(title="Training loss", x="step", y="loss", series=losses, markers=False)


def _against_parameters(named: Sequence[Named]) -> Iterator[Chart]:
    """Yield the main number over parameters, if networks differ in size."""
    records = {name: number.runs[0].record for name, number in named}
    sizes = {name: record.backbone.get("num_parameters", 0) for name, record in records.items()}
    if len({*sizes.values()} - {0}) > 1:
        yield Chart(
            title="Accuracy against parameters",
            x="parameters, millions",
            y=f"{named[0][1].metric}, percent",
            series={
                name: [(sizes[name] / 1e6, _main_number(number))]
                for name, number in named
                if sizes[name]
            },
            log_x=True,
        )


def _search(records: Sequence[Record], scores: str, chosen_key: str, y: str) -> Chart:
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
        value = run.details.get(chosen_key)
        if value and series[name]:  # learning rates are stored with few digits
            rings[name] = min((x for x, _ in series[name]), key=lambda x: abs(x - value))
    setting = "learning rate" if chosen_key else "cost"
    notes = ["Ring: chosen."] if rings else []
    notes.append("Shaded: edges of the search; the best value may be outside.")
    notes += [f"Diverged (not shown): {num_diverged}."] if num_diverged else []
    return Chart(
        title=f"Search over the {setting}",
        x=setting,
        y=y,
        series=series,
        marked=rings,
        note=" ".join(notes),
        log_x=True,
        edges=True,
    )


def _curves(snapshots: Sequence[Number]) -> Iterator[Chart]:
    """Yield the main number, and RankMe of followed runs, during pre-training: a line per run."""
    charts: dict[tuple[str, str, str], dict[str, Points]] = {}
    for name, numbers in grouped((curve_of(number), number) for number in snapshots).items():
        unit, positions = curve_positions(number.backbone for number in numbers)
        points = [(positions[number.backbone.name], number) for number in numbers]
        with_rank = [(x, n.runs[0].metrics) for x, n in points if RANKME in n.runs[0].metrics]
        x, y = f"{unit} of pre-training", f"{snapshots[0].metric}, percent"
        curve = sorted((x, _main_number(number)) for x, number in points)
        charts.setdefault(("During pre-training", x, y), {})[name] = curve
        if with_rank:
            y = "RankMe (effective rank of the features)"
            ranks = sorted((position, metrics[RANKME]) for position, metrics in with_rank)
            charts.setdefault(("Effective rank during pre-training", x, y), {})[name] = ranks
    for (title, x, y), series in sorted(charts.items()):
        yield Chart(title=title, x=x, y=y, series=series)


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
    """Yield tables of numbers per class or corruption, averaged over seeds."""
    tables: dict[tuple[str, str], dict[str, Mapping[str, float]]] = {}
    for name, number in named:
        of_seeds = grouped(entry for run in number.runs for entry in _by_class(run))
        for key, values in of_seeds.items():
            classes = grouped(entry for class_values in values for entry in class_values.items())
            means = {label: fmean(class_values) for label, class_values in classes.items()}
            tables.setdefault(key, {})[name] = means
    for (title, noun), columns in tables.items():
        is_accuracy = title == PER_CLASS["accuracy_per_class"]
        note = _counted_over(number.runs[0] for _, number in named) if is_accuracy else ""
        yield _by_name(title, noun, columns, note)


def _by_class(run: Run) -> Iterator[tuple[tuple[str, str], Mapping[str, float]]]:
    """Yield the numbers per class or corruption in a record, by title and noun of their table."""
    for detail, title in PER_CLASS.items():
        if values := run.details.get(detail):
            yield (title, "class"), values
    for kind, values in run.details.get("precisions", {}).items():
        by_class = {key[3:]: value for key, value in values.items() if key.startswith("AP/")}
        if len(by_class) > 1:
            title = f"Average precision of {KINDS.get(kind, kind)} by class"
            yield (title, "class"), by_class
    if choices := run.details.get("classes"):
        precisions = {name: choice["AP"] for name, choice in choices.items()}
        yield ("Average precision by class", "class"), precisions
    if kinds := run.details.get("top1"):
        means = {kind: fmean(severities.values()) for kind, severities in kinds.items()}
        yield ("Top-1 by corruption, mean over severities", "corruption"), means


def _counted_over(runs: Iterable[Run]) -> str:
    """Return a note on how per-class numbers are counted.

    It is empty if every image counts once.
    """
    stored = (run.details.get("classes_counted_over") for run in runs)
    over = dict.fromkeys(filter(None, stored))
    return f"Counted over {' or '.join(over)}." if over else ""


def _by_name(title: str, noun: str, columns: Mapping[str, Mapping[str, float]], note: str) -> Sheet:
    """Return a table of named numbers, a column per checkpoint.

    Rows are sorted by the first column. With several, a last column has the first minus the second.
    """
    shown_columns = dict(list(columns.items())[:MAX_COLUMNS])
    names = dict.fromkeys(name for values in shown_columns.values() for name in values)
    rows = {
        name: [values.get(name, math.nan) for values in shown_columns.values()] for name in names
    }
    header = [noun, *shown_columns]
    if len(shown_columns) > 1:
        header.append("first minus second")
        rows = {name: [*values, values[0] - values[1]] for name, values in rows.items()}
    order = sorted(rows, key=lambda name: -rows[name][0] if math.isfinite(rows[name][0]) else 1.0)
    if num_more := len(columns) - len(shown_columns):
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
            num_left=2,
            note=_counted_over([run]),
        )
        for name, run in records
        if (pairs := run.details.get("most_confused"))
    ]
    return sheets[:MAX_COLUMNS]


def _galleries(folder: Path, records: Iterable[Record]) -> list[Gallery]:
    """Return the images of a task's best checkpoints, if complete."""
    galleries: list[Gallery] = []
    for name, run in records:
        if len(galleries) == MAX_RECORDS:
            break
        if images := [*_images(gallery_folder(folder / run.file), run.record.finished)]:
            is_pair = run.heading == "Detection and segmentation"
            note = "Left: ground truth; right: prediction." if is_pair else ""
            kind = "gallery" if is_pair else "gallery small"
            galleries.append(Gallery(f"Pictures: {name}", images, note, kind))
    return galleries


def _images(folder: Path, finished: str) -> Iterator[Image]:
    """Yield the images of a record, without images of its earlier results."""
    captions = folder / CAPTIONS
    for line in captions.read_text(encoding="utf-8").splitlines() if captions.is_file() else ():
        entry = json.loads(line)
        # galleries of earlier commits lack the time of the record
        if entry.get("record_finished", finished) == finished:
            # only the file name, so that no other folder is read
            path = folder / Path(entry["file"]).name
            source = jpeg_address(path.read_bytes()) if path.is_file() else ""
            caption = ": ".join(filter(None, [entry["group"], entry["caption"]]))
            if source:
                yield Image(source, caption, name=entry["name"])


def _queries(records: Sequence[Record]) -> list[Gallery]:
    """Return a few queries with their nearest images, a row each."""
    galleries = []
    for name, run in records[:MAX_RECORDS]:
        rows = [
            [_neighbor(image, query) for image in (query, *query["neighbors"])]
            for query in run.details.get("queries", ())
        ]
        rows = [row for row in rows if row[0].source and len(row) > 1]
        num_rows = min(MAX_QUERIES, len(rows))
        for index in range(num_rows):  # evenly spread
            title = "" if index else f"Nearest images: {name}"
            row = rows[len(rows) * index // num_rows]
            galleries.append(Gallery(title, row, kind="neighbors"))
    return galleries


def _neighbor(image: Mapping[str, Any], query: Mapping[str, Any]) -> Image:
    """Return an image of a record; its source is empty if unreadable."""
    source = jpeg_address(base64.b64decode(image["jpeg_base64"]))
    if image is query:
        return Image(source, image["class"], "query", image["file"])
    is_same = image["class"] == query["class"]
    sign, group = ("✓", "same class") if is_same else ("✗", "other class")
    return Image(source, f"{sign} {image['class']}", group, image["file"])
