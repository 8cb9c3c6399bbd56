"""Read published text lists.

There is one line per image or class, with columns separated by blanks.

Byte order marks, trailing blanks, empty lines and any line ends are accepted, since editors and
other systems add them. For a malformed line, the error names the file and the line.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pretrain.running.reading import read_bytes, read_text
from transfer.datasets.expected import DataError

Columns = Mapping[str, type[str] | type[int]]
"""Type of each column, by column name."""


def read_list(file: Path, columns: Columns, *, joined: bool = False) -> list[list[Any]]:
    """Return the values of each nonempty line.

    joined: the last column includes all further words of the line. Raises DataError with the first
    malformed line, or for an empty file.
    """
    rows = []
    try:
        lines = read_text(file).split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text ({error})") from error
    for number, line in enumerate(lines, start=1):
        values = line.strip().split(None, len(columns) - 1 if joined else -1)
        if values:
            try:
                pairs = zip(columns.values(), values, strict=True)
                rows.append([kind(value) for kind, value in pairs])
            except ValueError:
                layout = " ".join(f"{n} (a number)" if k is int else n for n, k in columns.items())
                raise DataError(
                    f"{file}, line {number}: {line.strip()!r}; expected: {layout}"
                ) from None
    if not rows:
        raise DataError(f"{file}: an empty list; unpack the dataset again")
    return rows


def read_names(file: Path) -> list[str]:
    """Return the names in a file with one name per line."""
    return [name for (name,) in read_list(file, {"one name": str})]


def read_json(file: Path) -> dict[str, Any]:
    """Return a JSON object; raises DataError for any other content."""
    try:
        content = json.loads(read_bytes(file))
    except ValueError as error:
        raise DataError(f"{file}: this is not JSON ({error}); unpack the dataset again") from error
    if not isinstance(content, dict) or not content:
        raise DataError(f"{file}: not a JSON object, or empty; unpack the dataset again")
    return content
