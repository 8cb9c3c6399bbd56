"""Numbers of one task by class and by size, the most confused pairs, and the spread over runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from benchmarks.report_parts.alike import alike
from benchmarks.report_parts.task_charts import Named

MOST_COLUMNS = 6
"""Backbones beside each other in one table."""
SIZES = ("AP", "AP50", "AP75", "APs", "APm", "APl")
KINDS = {"bbox": "boxes", "segm": "masks", "keypoints": "keypoints"}
ACCURACY = "Accuracy by class"
PER_CLASS = ("accuracy_per_class", "IoU_per_class")


@dataclass(frozen=True, kw_only=True)
class NumberTable:
    """Named rows of numbers, a column each for several backbones or metrics."""

    title: str
    first: str
    """Heading of the column of names."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float | None, ...]], ...]
    note: str = ""
    bars: bool = True
    """The numbers are percent, and drawn as bars, too."""


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """Images of one class that were taken for another."""

    name: str
    taken_for: str
    images: int
    of: int


@dataclass(frozen=True, kw_only=True)
class Confusions:
    """The most confused pairs of one backbone."""

    backbone: str
    pairs: tuple[Confusion, ...]
    note: str = ""


def tables_of(records: Sequence[Named]) -> list[NumberTable]:
    """Return the tables of a task for which its records hold the numbers."""
    tables = [
        _sizes(records),
        *_classes(records),
        *_costs(records),
        _corruptions(records),
        _spread(records),
    ]
    return [table for table in tables if table is not None and table.rows]


def confusions_of(records: Sequence[Named]) -> list[Confusions]:
    """Return the most confused pairs of the backbones that are shown."""
    found = []
    for one in records:
        pairs = one.record.details.get("most_confused")
        if isinstance(pairs, list) and pairs:
            found.append(
                Confusions(
                    backbone=one.name,
                    pairs=tuple(
                        Confusion(
                            name=str(pair["class"]),
                            taken_for=str(pair["taken_for"]),
                            images=int(pair["images"]),
                            of=int(pair["of"]),
                        )
                        for pair in pairs
                    ),
                    note=_counted_over([one]),
                )
            )
    return found[:MOST_COLUMNS]


def _sizes(records: Sequence[Named]) -> NumberTable | None:
    """Return average precision by kind, threshold and size of the objects."""
    rows = []
    for one in records:
        precisions = one.record.details.get("precisions")
        if not isinstance(precisions, Mapping):
            continue
        for kind, of_kind in precisions.items():
            label = f"{one.name}, {KINDS.get(kind, kind)}"
            rows.append((label, tuple(_number(of_kind.get(name)) for name in SIZES)))
    return NumberTable(
        title="Average precision by threshold and size",
        first="backbone",
        columns=("AP", "AP50", "AP75", "small", "medium", "large"),
        rows=tuple(rows),
        bars=False,
    )


def _classes(records: Sequence[Named]) -> Iterable[NumberTable]:
    """Yield a table of classes for each kind of number that the records hold."""
    values: dict[str, dict[str, Mapping[str, object]]] = {}
    for one in records:
        for key in PER_CLASS:
            if isinstance(found := one.record.details.get(key), Mapping):
                title = ACCURACY if key.startswith("acc") else "IoU by class"
                values.setdefault(title, {})[one.name] = found
        precisions = one.record.details.get("precisions")
        for kind, of_kind in precisions.items() if isinstance(precisions, Mapping) else ():
            own = {k.removeprefix("AP/"): v for k, v in of_kind.items() if k.startswith("AP/")}
            if len(own) > 1:
                title = f"Average precision of {KINDS.get(kind, kind)} by class"
                values.setdefault(title, {})[one.name] = own
        classes = one.record.details.get("classes")
        if isinstance(classes, Mapping):
            own = {name: row.get("AP") for name, row in classes.items()}
            values.setdefault("Average precision by class", {})[one.name] = own
    for title, by_backbone in values.items():
        table = _beside(title, "class", by_backbone)
        counted = _counted_over(records) if title == ACCURACY else ""
        yield replace(table, note=" ".join(filter(None, [counted, table.note])))


def _counted_over(records: Sequence[Named]) -> str:
    """Return over what the numbers of classes are counted where that is not each image once."""
    found = [one.record.details.get("classes_counted_over") for one in records]
    over = dict.fromkeys(one for one in found if isinstance(one, str))
    return f"Counted over {' or '.join(over)}." if over else ""


def _beside(title: str, first: str, columns: Mapping[str, Mapping[str, object]]) -> NumberTable:
    """Return the numbers of several backbones beside each other, highest first."""
    shown = dict(list(columns.items())[:MOST_COLUMNS])
    names = dict.fromkeys(name for column in shown.values() for name in column)
    rows = [(name, tuple(_number(c.get(name)) for c in shown.values())) for name in names]
    rows.sort(key=lambda row: -(row[1][0] if row[1][0] is not None else -1.0))
    left = len(columns) - len(shown)
    note = f"{left} more backbones are not shown." if left else ""
    return NumberTable(title=title, first=first, columns=tuple(shown), rows=tuple(rows), note=note)


def _costs(records: Sequence[Named]) -> Iterable[NumberTable]:
    """Yield the chosen cost of each class, one table for each record."""
    for one in records[:MOST_COLUMNS]:
        classes = one.record.details.get("classes")
        if not isinstance(classes, Mapping):
            continue
        rows = [
            (name, (_number(row.get("cost")), _number(row.get("cross_validated_AP"))))
            for name, row in classes.items()
        ]
        edge = [name for name, row in classes.items() if row.get("at_grid_edge")]
        yield NumberTable(
            title=f"Chosen costs: {one.name}",
            first="class",
            columns=("cost", "cross-validated AP"),
            rows=tuple(rows),
            note=f"At the edge of the grid: {', '.join(edge)}." if edge else "",
            bars=False,
        )


def _corruptions(records: Sequence[Named]) -> NumberTable | None:
    """Return top-1 by kind of corruption, as the mean over its severities."""
    columns: dict[str, dict[str, object]] = {}
    for one in records:
        kinds = one.record.details.get("top1")
        if isinstance(kinds, Mapping):
            columns[one.name] = {name: fmean(of.values()) for name, of in kinds.items() if of}
    return _beside("Top-1 by corruption, mean over severities", "corruption", columns)


def _spread(records: Sequence[Named]) -> NumberTable | None:
    """Return mean, deviation and range over seeds, over trials and over draws."""
    rows = []
    for one in records:
        for name in ("trials", "draws"):
            found = one.record.details.get(name)
            for metric, values in found.items() if isinstance(found, Mapping) else ():
                rows.append(_spread_row(f"{one.name}, {metric}, {name}", list(map(float, values))))
    groups = alike(one.result for one in records)
    labels = [", ".join(filter(None, [group.model.label, group.kind])) for group in groups]
    for group, label in zip(groups, labels, strict=True):
        metric = group.runs[0].primary_metric
        values = [run.metrics[metric] for run in group.runs if metric in run.metrics]
        weights = f", weights {group.model.sha256[:8]}" if labels.count(label) > 1 else ""
        if values:
            rows.append(_spread_row(f"{label}{weights}, seeds", values))
    return NumberTable(
        title="Spread over runs",
        first="backbone",
        columns=("runs", "mean", "standard deviation", "lowest", "highest"),
        rows=tuple(row for row in rows if row[1][0] is not None and row[1][0] > 1),
        bars=False,
    )


def _spread_row(label: str, values: Sequence[float]) -> tuple[str, tuple[float | None, ...]]:
    deviation = stdev(values) if len(values) > 1 else None
    return label, (len(values), fmean(values), deviation, min(values), max(values))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
