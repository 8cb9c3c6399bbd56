"""Lists that publishers give as text: a line per image or class, words between blanks.

Editors and other systems add a byte order mark, blanks at the end, empty lines and other line ends;
all are read. A line of another form is an error that names the file and the line.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pretrain.running.reading import read_bytes, read_text
from transfer.datasets.expected import DataError

Columns = Mapping[str, type[str] | type[int]]
"""Type of each word of a line, by its meaning."""


def read_list(file: Path, columns: Columns, *, rest: str = "") -> Iterator[tuple[int, list[Any]]]:
    """Yield number, from 1, and typed words of each line that is not empty.

    rest: "joined" if the last word is the rest of the line, "ignored" if others may follow it.
    DataError names the first line of another form.
    """
    cuts = len(columns) - 1 if rest == "joined" else -1
    numeric = [k for k, kind in enumerate(columns.values()) if kind is int]
    for number, line in enumerate(_lines(file), start=1):
        words: list[Any] = line.strip().split(None, cuts)
        if not words:
            continue
        try:
            if rest == "ignored":
                del words[len(columns) :]
            if len(words) != len(columns):
                raise ValueError
            for k in numeric:
                words[k] = int(words[k])
        except ValueError:
            form = " ".join(name + " (a number)" * (k is int) for name, k in columns.items())
            raise bad_line(file, number, f"{line.strip()!r}; expected: {form}") from None
        yield number, words


def read_names(file: Path) -> list[str]:
    """Return the only word of each line that is not empty."""
    return [name for _, (name,) in read_list(file, {"one name": str})]


def read_labels(file: Path, columns: Columns, *, rest: str = "") -> dict[str, int]:
    """Return the label of each class, the first word of a line, in the order of the lines."""
    labels: dict[str, int] = {}
    for number, (name, *_) in read_list(file, columns, rest=rest):
        if name in labels:
            raise bad_line(file, number, f"a second line for {name}")
        labels[name] = len(labels)
    return labels


def read_pairs(file: Path, columns: Columns) -> dict[Any, Any]:
    """Return the second word of each line by the first; DataError if two lines have one first."""
    pairs: dict[Any, Any] = {}
    for number, (key, value) in read_list(file, columns):
        if key in pairs:
            raise bad_line(file, number, f"a second line for {key}")
        pairs[key] = value
    return pairs


def bad_line(file: Path, number: int, why: str) -> DataError:
    """Return the error that names a line of a list."""
    return DataError(f"{file}, line {number}: {why}")


def read_json(file: Path) -> Any:
    """Return the content of a JSON file; DataError names one that holds none."""
    try:
        return json.loads(read_bytes(file))
    except ValueError as error:
        raise DataError(f"{file}: this is not JSON ({error}); unpack the set again") from error


def _lines(file: Path) -> list[str]:
    try:
        return read_text(file).split("\n")
    except UnicodeDecodeError as error:
        number = error.object[: error.start].count(b"\n") + 1
        raise bad_line(file, number, "this is not text in UTF-8") from error
