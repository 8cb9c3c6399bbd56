"""Numbers of one task by class, by size and by corruption, and the most confused pairs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from benchmarks.report_parts.task_charts import Named

MOST_COLUMNS = 6
"""Backbones beside each other in one table."""
SIZES = ("AP", "AP50", "AP75", "APs", "APm", "APl")
KINDS = {"bbox": "boxes", "segm": "masks", "keypoints": "keypoints"}
PER_CLASS = {"accuracy_per_class": "Accuracy by class", "IoU_per_class": "IoU by class"}


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


Confusions = tuple[str, tuple[tuple[Any, ...], ...], str]
"""A backbone, its most confused pairs, and a note. Of a pair there are the class, the class that it
was taken for, and the numbers of such and of all its images."""


def tables_of(records: Sequence[Named]) -> list[NumberTable]:
    """Return the tables of a task for which its records hold the numbers."""
    tables = [_sizes(records), *_classes(records), _corruptions(records)]
    return [table for table in tables if table.rows]


def confusions_of(records: Sequence[Named]) -> list[Confusions]:
    """Return the most confused pairs of the backbones that are shown."""
    keys = ("class", "taken_for", "images", "of")
    return [
        (
            name,
            tuple(tuple(pair[key] for key in keys) for pair in pairs),
            _counted_over([(name, one)]),
        )
        for name, one in records
        if (pairs := one.details.get("most_confused"))
    ][:MOST_COLUMNS]


def _sizes(records: Sequence[Named]) -> NumberTable:
    """Return average precision by kind, threshold and size of the objects."""
    return NumberTable(
        title="Average precision by threshold and size",
        first="backbone",
        columns=("AP", "AP50", "AP75", "small", "medium", "large"),
        rows=tuple(
            (f"{name}, {KINDS.get(kind, kind)}", tuple(_finite(found.get(n)) for n in SIZES))
            for name, one in records
            for kind, found in one.details.get("precisions", {}).items()
        ),
        bars=False,
    )


def _classes(records: Sequence[Named]) -> Iterator[NumberTable]:
    """Yield a table of classes for each kind of number that the records hold."""
    values: dict[str, dict[str, Mapping[str, float]]] = {}
    for name, one in records:
        for key, title in PER_CLASS.items():
            if found := one.details.get(key):
                values.setdefault(title, {})[name] = found
        for kind, of_kind in one.details.get("precisions", {}).items():
            own = {k.removeprefix("AP/"): v for k, v in of_kind.items() if k.startswith("AP/")}
            if len(own) > 1:
                title = f"Average precision of {KINDS.get(kind, kind)} by class"
                values.setdefault(title, {})[name] = own
        if choices := one.details.get("classes"):
            own = {label: choice["AP"] for label, choice in choices.items()}
            values.setdefault("Average precision by class", {})[name] = own
    for title, by_backbone in values.items():
        table = _beside(title, "class", by_backbone)
        counted = _counted_over(records) if title == PER_CLASS["accuracy_per_class"] else ""
        yield replace(table, note=" ".join(filter(None, [counted, table.note])))
        if len(table.columns) > 1:
            yield _apart(table)


def _apart(table: NumberTable) -> NumberTable:
    """Return by how much the first backbone of a table is ahead of the second in each class."""
    first, second = table.columns[:2]
    rows = [
        (name, (values[0] - values[1],))
        for name, values in table.rows
        if values[0] is not None and values[1] is not None
    ]
    rows.sort(key=lambda row: -row[1][0])
    return NumberTable(
        title=f"{table.title}: differences",
        first=table.first,
        columns=(f"{first} minus {second}",),
        rows=tuple(rows),
        bars=False,
    )


def _counted_over(records: Sequence[Named]) -> str:
    """Return over what the numbers of classes are counted where that is not each image once."""
    over = dict.fromkeys(filter(None, (r.details.get("classes_counted_over") for _, r in records)))
    return f"Counted over {' or '.join(over)}." if over else ""


def _beside(title: str, first: str, columns: Mapping[str, Mapping[str, float]]) -> NumberTable:
    """Return the numbers of several records beside each other, highest first."""
    shown = dict(list(columns.items())[:MOST_COLUMNS])
    names = dict.fromkeys(name for column in shown.values() for name in column)
    rows = [(name, tuple(_finite(c.get(name)) for c in shown.values())) for name in names]
    rows.sort(key=lambda row: -(row[1][0] if row[1][0] is not None else -1.0))
    left = len(columns) - len(shown)
    note = f"{left} more record{' is' if left == 1 else 's are'} not shown." if left else ""
    return NumberTable(title=title, first=first, columns=tuple(shown), rows=tuple(rows), note=note)


def _corruptions(records: Sequence[Named]) -> NumberTable:
    """Return top-1 by kind of corruption, as the mean over its severities."""
    columns = {
        name: {kind: fmean(severities.values()) for kind, severities in kinds.items()}
        for name, one in records
        if (kinds := one.details.get("top1"))
    }
    return _beside("Top-1 by corruption, mean over severities", "corruption", columns)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
