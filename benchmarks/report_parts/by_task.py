"""Task by task: what the records hold beyond the numbers of the tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.report_parts.charts import Chart
from benchmarks.report_parts.contents import Contents
from benchmarks.report_parts.galleries import (
    Gallery,
    Queries,
    galleries_of,
    queries_of,
)
from benchmarks.report_parts.task_charts import Named, charts_of, named_records
from benchmarks.report_parts.task_classes import Confusions, NumberTable, confusions_of, tables_of


@dataclass(frozen=True, kw_only=True)
class TaskPart:
    """Charts and tables of one task."""

    task: str
    heading: str
    num_results: int
    charts: tuple[Chart, ...]
    tables: tuple[NumberTable, ...]
    confusions: tuple[Confusions, ...]
    galleries: tuple[Gallery, ...]
    queries: tuple[Queries, ...]
    unreadable: tuple[str, ...]
    """Sentences on details of records that have a foreign shape."""

    @property
    def words(self) -> str:
        """Return what the part holds, in a line."""
        titles = [chart.title for chart in self.charts] + [table.title for table in self.tables]
        titles += ["Most confused classes"] if self.confusions else []
        titles += ["Pictures"] if self.galleries else []
        titles += ["Nearest images"] if self.queries else []
        titles += ["Details that cannot be read"] if self.unreadable else []
        kinds = dict.fromkeys(title.partition(":")[0] for title in titles)
        return "; ".join(kinds)


def _unreadable(records: Sequence[Named]) -> Iterator[str]:
    for one in records:
        if names := one.details.unreadable:
            verb = "has" if len(names) == 1 else "have"
            yield (
                f"{', '.join(names)} of the record {one.result.file} {verb} a shape that this page "
                "cannot read; the rest of the record is shown."
            )


def parts_by_task(contents: Contents) -> list[TaskPart]:
    """Return a part for each task whose records hold charts or tables."""
    done, snapshots = contents.results.done, contents.snapshots.done
    parts = []
    for task in dict.fromkeys(result.task for result in (*done, *snapshots)):
        own = [r for r in done if r.task == task]
        records = named_records((r, whole) for r in own if (whole := contents.whole(r)))
        part = TaskPart(
            task=task,
            heading=next(r.heading for r in (*done, *snapshots) if r.task == task),
            num_results=len(own),
            charts=tuple(charts_of(records, [r for r in snapshots if r.task == task])),
            tables=tuple(tables_of(records)),
            confusions=tuple(confusions_of(records)),
            galleries=tuple(galleries_of(contents.folder, records)),
            queries=tuple(queries_of(records)),
            unreadable=tuple(_unreadable(records)),
        )
        if part.words:
            parts.append(part)
    return sorted(parts, key=lambda part: (part.heading, part.task))
