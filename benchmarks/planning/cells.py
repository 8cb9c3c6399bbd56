"""Tasks and numbers that a request names, and the check of its data folder."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.results.published import papers
from pretrain.running.command_line import Range, nearest, require_in_range
from transfer.datasets.catalog import DATASETS
from transfer.datasets.expected import DataError
from transfer.datasets.folders import data_folder
from transfer.tasks import TASKS, default_tasks, get, matching_keys, reading_of


def task_keys(tasks: str, suite: str, skip: str = "") -> list[str]:
    """Return the keys of TASKS that the request names and does not skip.

    tasks, skip: keys, ids, groups, patterns and suites, separated by commas. ValueError for an
    unknown task or paper, and if nothing is left.
    """
    wanted = _names(tasks)
    if suite:
        known = suites()
        if suite not in known:
            raise ValueError(f"no suite {suite!r}; did you mean {nearest(suite, known)}?")
        wanted.append(suite)
    named = [key for name in wanted for key in _keys_of(name)]
    keys = list(dict.fromkeys(named)) if wanted else default_tasks()
    skipped = {name: _keys_of(name) for name in _names(skip)}
    for name, of_name in skipped.items():
        if not set(of_name) & set(keys):
            raise ValueError(f"--skip {name}: it is not among the tasks that are asked for")
    if not (left := [key for key in keys if all(key not in out for out in skipped.values())]):
        raise ValueError(f"--skip {skip}: no task is left")
    return left


def _names(words: str) -> list[str]:
    return [word.strip() for word in words.split(",") if word.strip()]


def _keys_of(name: str) -> list[str]:
    """Return the keys that one name of a request stands for; TaskError for an unknown one."""
    return matching_keys(name) or list(suites().get(name, ())) or [get(name).key]


def split_numbers(words: str, option: str, example: str, allowed: Range) -> list[int]:
    """Return the numbers between commas; ValueError for others, out of range or twice."""
    try:
        numbers = [int(word) for word in words.split(",")]
    except ValueError as error:
        raise ValueError(f"{option} {words!r}: expected numbers such as {example}") from error
    require_in_range(option, numbers, allowed)
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{option} {words}: each number once")
    return numbers


def suites() -> dict[str, tuple[str, ...]]:
    """Return the keys of TASKS of each paper, in the order of its tables; `also` comes last."""
    suite_keys = {}
    for paper in papers():
        keys = {
            key: None
            for task, protocol in paper.reported
            for key, known in TASKS.items()
            if (reading_of(key)[0], known.protocol.partition("/")[0]) == (task, protocol)
        }
        suite_keys[paper.id] = (*keys, *(key for key in paper.also if key not in keys))
    return suite_keys


def require_data_folder(data: Path, keys: Iterable[str], *, may_be_empty: bool = False) -> None:
    """Raise DataError unless the folder holds data sets, each of these in its place if it exists.

    The folder that is taken where none is named may be absent, and with `may_be_empty` any: the
    plan says how to get the data.
    """
    if not data.exists() and (may_be_empty or data == data_folder()):
        return
    if not data.is_dir():
        what = "is a file" if data.exists() else "no such folder"
        raise DataError(f"--data {data}: {what}; expected the folder of all data sets")
    if next(data.iterdir(), None) is None:
        if may_be_empty:
            return
        raise DataError(
            f"--data {data}: the folder is empty; python -m transfer get-data KEY --data {data} "
            "gets a data set"
        )
    keys = list(dict.fromkeys(keys))
    if problems := list(_misplaced(data, keys)):
        raise DataError(f"--data {data}: {'; '.join(problems)}")


def _misplaced(data: Path, keys: Iterable[str]) -> Iterator[str]:
    for folder in dict.fromkeys(DATASETS[key].folder for key in keys):
        expected = data / folder
        if expected.parent.name == "VOCdevkit" and not expected.exists():
            for found in (data / expected.name, *data.glob(f"*/{expected.name}")):
                if found.is_dir():
                    yield f"{found} is expected at {expected}"
