"""Commands, words and groups that several modules print, draw or compute with."""

import re
from collections.abc import Collection, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

IN_CHECKOUT = (Path(__file__).parents[1] / "pyproject.toml").is_file()
RUN_ALL = ("python", "benchmarks/run_all.py") if IN_CHECKOUT else ("ssl-benchmark",)
TRANSFER = ("python", "-m", "transfer") if IN_CHECKOUT else ("ssl-transfer",)
"""Commands to print; an installed wheel has no run_all.py."""
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def tolerated_notes(tolerated: Iterable[tuple[str, int]]) -> list[str]:
    """Return a note for each incomplete dataset."""
    return [
        f"{count} missing, surplus, repeated or unreadable images or annotations of {key} tolerated"
        for key, count in tolerated
    ]


def value_words(value: Any, between: str = " ") -> str:
    """Return a value as text, with short floats and joined lists."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return ", ".join(
            f"{name} {value_words(element, between)}" for name, element in value.items()
        )
    if isinstance(value, list | tuple):
        return between.join(value_words(element, between) for element in value) or "none"
    return str(value)


def plural(count: int, noun: str, ending: str = "s") -> str:
    """Return words such as "1 process" or "2 processes"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{ending}"


def count_tasks(keys: Collection[str]) -> str:
    """Return the number of tasks or protocol variants as text.

    A task is an id, such as in1k_linear; in1k_linear@co2 is a protocol variant of it.
    """
    tasks = plural(len({key.partition("@")[0] for key in keys}), "task")
    return (
        tasks if tasks.startswith(f"{len(keys)} ") else f"{len(keys)} protocol variants of {tasks}"
    )


def short_key(key: str) -> str:
    """Return the label of a task in a column, such as cars for transfer_linear/cars."""
    return re.sub("^transfer_linear/|_linear$|_knn$", "", key)


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, both in the given order."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
