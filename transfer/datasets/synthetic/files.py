"""Files of a small data set, written together with the folders above them."""

from collections.abc import Sequence
from pathlib import Path


def write_file(file: Path, content: bytes) -> None:
    """Write a file and create the folders above it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def write_lines(file: Path, lines: Sequence[str]) -> None:
    """Write lines, each closed by a newline, and create the folders above the file."""
    write_file(file, "".join(f"{line}\n" for line in lines).encode())
