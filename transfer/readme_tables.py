"""The tables of tasks and data sets in TASKS.md: python -m transfer.readme_tables renews them.

They stand between markers and are made from TASKS and DATASETS alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pretrain.running.atomic_files import write_whole
from pretrain.running.command_line import parse, run_command
from transfer.datasets.catalog import DATASETS
from transfer.datasets.info import DatasetInfo
from transfer.tasks import TASKS

PAGE = Path(__file__).with_name("TASKS.md")
COMMAND = "python -m transfer.readme_tables"


def task_table() -> str:
    """Return a markdown table with one row per task, in the order of TASKS."""
    header = ("task", "data sets", "primary metric", "runs", "heading")
    rows = (
        (
            f"`{key}`",
            ", ".join(f"`{dataset}`" for dataset in task.datasets()),
            task.primary_metric,
            "by default" if task.by_default else "on request",
            task.heading,
        )
        for key, task in TASKS.items()
    )
    return _markdown(header, rows)


def dataset_table() -> str:
    """Return a markdown table with one row per data set, in the order of DATASETS."""
    header = ("data set", "title", "classes", "train", "val", "test", "tasks")
    rows = (
        (
            f"`{key}`",
            info.title,
            str(info.num_classes),
            *(_count(info, split) for split in ("train", "val", "test")),
            ", ".join(f"`{name}`" for name, task in TASKS.items() if key in task.datasets()) or "–",
        )
        for key, info in DATASETS.items()
    )
    return _markdown(header, rows)


TABLES = {"tasks": task_table, "data sets": dataset_table}
"""The function of each marked table."""


def with_current_tables(text: str) -> str:
    """Return a page with its marked tables renewed; ValueError without the markers."""
    for name, table in TABLES.items():
        start, end = f"<!-- {name}: written by {COMMAND} -->\n", f"<!-- end of {name} -->\n"
        before, found_start, rest = text.partition(start)
        _, found_end, after = rest.partition(end)
        if not found_start or not found_end:
            raise ValueError(f"the page has no {start.strip()!r} followed by {end.strip()!r}")
        text = f"{before}{start}\n{table()}\n{end}{after}"
    return text


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _count(info: DatasetInfo, split: str) -> str:
    if split not in info.counts:
        return "–"
    return f"{info.counts[split]:,}" if info.counts[split] else "unpublished"


@dataclass(frozen=True)
class Request:
    """Write the tables of transfer/TASKS.md. There are no options."""


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    parse(Request, words)
    write_whole(PAGE, with_current_tables(PAGE.read_text()).encode())
    print(f"tables of {len(TASKS)} tasks and {len(DATASETS)} data sets  ->  {PAGE}")
    return 0


if __name__ == "__main__":
    run_command(main)
