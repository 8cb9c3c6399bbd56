"""Read published text lists.

There is one line per image or class, with columns separated by blanks.

Byte order marks, trailing blanks, empty lines and any line ends are accepted, since editors and
other systems add them. For a malformed line, the error names the file and the line.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pretrain.running.reading import read_bytes, read_text
from transfer.datasets.expected import DataError

Columns = Mapping[str, type[str] | type[int]]
"""Type of each column, by column name."""


def read_list(file: Path, columns: Columns, *, extra: str = "") -> Iterator[tuple[int, list[Any]]]:
    """Yield number (from 1) and values of each nonempty line.

    extra: "joined" if the last column includes all further words of the line, "ignored" if further
    words are allowed and skipped. DataError names the first malformed line, or an empty file.
    """
    lines = _lines(file)
    if not any(map(str.strip, lines)):
        raise DataError(f"{file}: an empty list; unpack the dataset again")
    max_splits = len(columns) - 1 if extra == "joined" else -1
    numeric = [k for k, kind in enumerate(columns.values()) if kind is int]
    for number, line in enumerate(lines, start=1):
        values: list[Any] = line.strip().split(None, max_splits)
        if not values:
            continue
        try:
            if extra == "ignored":
                del values[len(columns) :]
            if len(values) != len(columns):
                raise ValueError
            for k in numeric:
                values[k] = int(values[k])
        except ValueError:
            layout = " ".join(f"{n} (a number)" if k is int else n for n, k in columns.items())
            raise bad_line(file, number, f"{line.strip()!r}; expected: {layout}") from None
        yield number, values


def read_names(file: Path) -> list[str]:
    """Return the names in a file with one name per line."""
    return [name for _, (name,) in read_list(file, {"one name": str})]


def read_labels(file: Path, columns: Columns, *, extra: str = "") -> dict[str, int]:
    """Return the label of each class, given in the first column."""
    labels: dict[str, int] = {}
    for number, (name, *_) in read_list(file, columns, extra=extra):
        if name in labels:
            raise bad_line(file, number, f"a second line for {name}")
        labels[name] = len(labels)
    return labels


def read_pairs(file: Path, columns: Columns) -> dict[Any, Any]:
    """Return {first column: second column}.

    DataError if a key occurs twice.
    """
    pairs: dict[Any, Any] = {}
    for number, (key, value) in read_list(file, columns):
        if key in pairs:
            raise bad_line(file, number, f"a second line for {key}")
        pairs[key] = value
    return pairs


def bad_line(file: Path, number: int, reason: str) -> DataError:
    """Return the error for a line of a list."""
    return DataError(f"{file}, line {number}: {reason}")


def read_json(file: Path, kind: type) -> dict[str, Any]:
    """Return a JSON object with values of one type.

    DataError for any other content.
    """
    try:
        content = json.loads(read_bytes(file))
    except ValueError as error:
        raise DataError(f"{file}: this is not JSON ({error}); unpack the dataset again") from error
    if not isinstance(content, dict) or not content:
        raise DataError(f"{file}: not a JSON object, or empty; unpack the dataset again")
    for name, value in content.items():
        if not isinstance(value, kind):
            raise DataError(f"{file}: {name!r} is not a {kind.__name__}; unpack the dataset again")
    return content


def _lines(file: Path) -> list[str]:
    try:
        return read_text(file).split("\n")
    except UnicodeDecodeError as error:
        number = error.object[: error.start].count(b"\n") + 1
        raise bad_line(file, number, "this is not UTF-8 text") from error
