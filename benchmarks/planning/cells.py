"""Cells of a request: the tasks that it names, one cell for each seed."""

from collections.abc import Iterable, Sequence

from benchmarks.pages.published import papers
from pretrain.running.option_ranges import Range
from transfer.backbone import Backbone
from transfer.cells.request import Cell, CellSettings
from transfer.running.option_ranges import require_in_range
from transfer.running.row_names import nearest
from transfer.tasks import TASKS, default_tasks, reading_of, task_of


def cells_of(
    backbones: Iterable[Backbone],
    keys: Sequence[str],
    settings: CellSettings,
    seeds: Sequence[int] = (0,),
) -> list[Cell]:
    """Return a cell for each backbone, task key and seed, in this order."""
    return [
        Cell(key=key, backbone=backbone, seed=seed, settings=settings)
        for backbone in backbones
        for key in keys
        for seed in seeds
    ]


def split_words(words: str) -> list[str]:
    """Return the words between commas, without spaces and without empty ones."""
    return [word.strip() for word in words.split(",") if word.strip()]


def task_keys(tasks: str, suite: str, skip: str = "") -> list[str]:
    """Return the keys of TASKS that the request names and does not skip.

    ValueError for an unknown task or paper, and if nothing is left.
    """
    keys = _named_keys(tasks, suite)
    left_out = set(_named_keys(skip, "")) if skip else set()
    if unused := sorted(left_out - set(keys)):
        raise ValueError(f"--skip {unused[0]}: it is not among the tasks that are asked for")
    if not (left := [key for key in keys if key not in left_out]):
        raise ValueError(f"--skip {skip}: no task is left")
    return left


def _named_keys(tasks: str, suite: str) -> list[str]:
    wanted = split_words(tasks)
    if suite:
        known = suites()
        if suite not in known:
            raise ValueError(f"no suite {suite!r}; did you mean {nearest(suite, known)}?")
        wanted += known[suite]
    if not wanted:
        return default_tasks()
    for word in wanted:
        if not _keys_of(word):
            task_of(word)
    return list(dict.fromkeys(key for word in wanted for key in _keys_of(word) or [word]))


def _keys_of(task: str) -> list[str]:
    """Return the keys of all readings of a task id, or the key itself; empty if unknown."""
    return [key for key in default_tasks() if key == task or reading_of(key)[0] == task]


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
