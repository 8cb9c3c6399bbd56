"""Files of a small data set, written with the folders above them, and its entry as a small one."""

import json
from collections.abc import Sequence
from pathlib import Path

from pretrain.running.atomic_files import write_whole
from transfer.datasets.expected import SMALL_DATA, Sizes, small_sizes


def write_file(file: Path, content: bytes) -> None:
    """Write a file and create the folders above it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def write_lines(file: Path, lines: Sequence[str]) -> None:
    """Write lines, each closed by a newline, and create the folders above the file."""
    write_file(file, "".join(f"{line}\n" for line in lines).encode())


def mark_small(data: Path, key: str, sizes: Sizes) -> None:
    """Enter one set into `small-data.json`; a reader meanwhile sees the old file or the new one."""
    known = small_sizes(data) | {key: sizes}
    text = {
        k: {"classes": s.classes, "counts": dict(s.counts), "drawn": s.drawn}
        for k, s in sorted(known.items())
    }
    file = data / SMALL_DATA
    write_whole(file, (json.dumps(text, indent=1) + "\n").encode(), "--data")
