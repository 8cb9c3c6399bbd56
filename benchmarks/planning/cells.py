"""Tasks and seeds of a request; the check of the data folder."""

from pathlib import Path

from benchmarks.results.published import papers
from pretrain.running.command_line import nearest
from pretrain.running.ranges import Range, require_in_range
from transfer.datasets.expected import DataError
from transfer.datasets.folders import data_folder
from transfer.tasks import TASKS, default_tasks, get, matching_keys, reading_of


def task_keys(tasks: str, suite: str, skip: str = "") -> list[str]:
    """Return the keys of the requested tasks that are not skipped.

    tasks, skip: keys, ids, groups, patterns and suites, separated by commas; empty if not given.
    ValueError for an unknown task or paper, and if no task remains.
    """
    names = _split_names(tasks)
    if tasks and not names:
        raise ValueError(f"--tasks {tasks!r}: expected tasks, separated by commas")
    if suite:
        papers_tasks = suites()
        if suite not in papers_tasks:
            raise ValueError(
                f"unknown suite {suite!r}. Did you mean {nearest(suite, papers_tasks)}?"
            )
        names.append(suite)
    requested = [key for name in names for key in _keys_of(name)]
    keys = list(dict.fromkeys(requested)) if names else default_tasks()
    skipped = {name: _keys_of(name) for name in _split_names(skip)}
    for name, skipped_keys in skipped.items():
        if not set(skipped_keys) & set(keys):
            raise ValueError(f"--skip {name}: not one of the requested tasks")
    remaining = [key for key in keys if all(key not in out for out in skipped.values())]
    if not remaining:
        raise ValueError(f"--skip {skip}: no task remains")
    return remaining


def _split_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _keys_of(name: str) -> list[str]:
    """Return the keys that match a name; TaskError if none does."""
    return matching_keys(name) or list(suites().get(name, ())) or [get(name).key]


def split_numbers(text: str, option: str, example: str, allowed: Range) -> list[int]:
    """Return comma-separated integers; ValueError unless they are in range and distinct."""
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError as error:
        raise ValueError(f"{option} {text!r}: expected numbers such as {example}") from error
    require_in_range(option, numbers, allowed)
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{option} {text}: pass each number only once")
    return numbers


def suites() -> dict[str, tuple[str, ...]]:
    """Return the task keys of each paper, ordered as in its tables.

    Keys that the paper's file lists in `also` come last.
    """
    suite_keys = {}
    for paper in papers():
        keys = {
            key: None
            for task, protocol in paper.reported
            for key, candidate in TASKS.items()
            if (reading_of(key)[0], candidate.protocol.partition("/")[0]) == (task, protocol)
        }
        suite_keys[paper.id] = (*keys, *(key for key in paper.also if key not in keys))
    return suite_keys


def require_data_folder(data: Path, *, may_be_empty: bool = False) -> None:
    """Raise DataError unless the folder contains something.

    The default folder may be missing, since the plan shows how to get the data. With
    `may_be_empty`, any folder may be missing or empty.
    """
    if not data.exists() and (may_be_empty or data == data_folder()):
        return
    if not data.is_dir():
        problem = "not a folder" if data.exists() else "no such folder"
        raise DataError(f"--data {data}: {problem}. Pass the folder that contains all datasets")
    if next(data.iterdir(), None) is None and not may_be_empty:
        raise DataError(
            f"--data {data}: the folder is empty. To get a dataset: "
            f"python -m transfer get-data KEY --data {data}"
        )
