"""The tables of tasks and data sets in TASKS.md: python -m transfer.readme_tables renews them.

They stand between markers and are made from TASKS and DATASETS alone.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pretrain.running.atomic_files import write_whole
from transfer.datasets.catalog import DATASETS
from transfer.datasets.info import DatasetInfo
from transfer.getting.overview import format_bytes
from transfer.tasks import TASKS, reading_of

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
    header = (
        *("data set", "title", "classes", "train", "val", "test"),
        *("archives", "how obtained", "terms", "source", "tasks"),
    )
    rows = (
        (
            f"`{key}`",
            info.title,
            str(info.num_classes),
            *(_count(info, split) for split in ("train", "val", "test")),
            _size(info),
            _access(info),
            _terms(info),
            _source(info),
            _tasks_on(key),
        )
        for key, info in DATASETS.items()
    )
    return _markdown(header, rows)


ACCESS = {
    "download": "download",
    "registration": "registration, then `--from` or `--link`",
    "password": "by the user, then `--link`",
    "no home": "by the user, then `--from` or `--link`",
}
"""How an archive is obtained, in the words of the table."""
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


def _source(info: DatasetInfo) -> str:
    """Return a link to the first page that the instructions name; a dash if they name none."""
    page = re.search(r"https?://([^/\s]+)[^\s,()]*", info.how_to_get)
    return f"[{page[1].removeprefix('www.')}]({page[0]})" if page else "–"


def _size(info: DatasetInfo) -> str:
    """Return the size of all archives; a tilde marks a rounded one."""
    archives = [archive for source in info.sources for archive in source.archives]
    exact = all(archive.exact for archive in archives)
    num_bytes = sum(archive.num_bytes for archive in archives)
    return format_bytes(num_bytes, exact=exact) if num_bytes else "–"


def _access(info: DatasetInfo) -> str:
    """Return how `get-data` gets the archives; a dash for a set that it does not know."""
    words = dict.fromkeys(ACCESS[source.access] for source in info.sources)
    return " and ".join(words) or "–"


def _terms(info: DatasetInfo) -> str:
    """Return the terms of each source, with links to the pages that state them."""
    pages = {source.terms_url: source.terms for source in info.sources}
    return "; ".join(f"[{terms}]({page})" for page, terms in pages.items()) or "–"


def _tasks_on(dataset: str) -> str:
    """Return the tasks that read a data set, the readings of one task in braces."""
    readings: dict[str, list[str]] = {}
    for key, task in TASKS.items():
        if dataset in task.datasets():
            name, reading = reading_of(key)
            readings.setdefault(name, []).append(f"@{reading}" if reading else "")
    return ", ".join(f"`{name}{_one_or_braces(keys)}`" for name, keys in readings.items()) or "–"


def _one_or_braces(readings: Sequence[str]) -> str:
    """Return the only reading, or {, @one, @other} of several; the plain task has an empty one."""
    return readings[0] if len(readings) == 1 else "{" + ", ".join(readings) + "}"


if __name__ == "__main__":
    write_whole(PAGE, with_current_tables(PAGE.read_text()).encode())
    print(f"tables of {len(TASKS)} tasks and {len(DATASETS)} data sets  ->  {PAGE}")
