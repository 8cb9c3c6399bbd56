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
    DataError names the first line of another form, or a file without any.
    """
    lines = _lines(file)
    if not any(map(str.strip, lines)):
        raise DataError(f"{file}: an empty list; unpack the set again")
    cuts = len(columns) - 1 if rest == "joined" else -1
    numeric = [k for k, kind in enumerate(columns.values()) if kind is int]
    for number, line in enumerate(lines, start=1):
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


def read_json(file: Path, kind: type) -> dict[str, Any]:
    """Return the content of a JSON file: an object, all of whose values are of a kind.

    DataError names another file.
    """
    try:
        content = json.loads(read_bytes(file))
    except ValueError as error:
        raise DataError(f"{file}: this is not JSON ({error}); unpack the set again") from error
    if not isinstance(content, dict) or not content:
        raise DataError(f"{file}: holds no JSON object with entries; unpack the set again")
    for name, value in content.items():
        if not isinstance(value, kind):
            raise DataError(f"{file}: {name!r} is not a {kind.__name__}; unpack the set again")
    return content


def _lines(file: Path) -> list[str]:
    try:
        return read_text(file).split("\n")
    except UnicodeDecodeError as error:
        number = error.object[: error.start].count(b"\n") + 1
        raise bad_line(file, number, "this is not text in UTF-8") from error
