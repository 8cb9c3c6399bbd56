"""The pictures of one record as files: RECORD.gallery/, whole or not at all.

The captions are lines of JSON. The folder holds no .json file, because those are records.
"""

import json
import secrets
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from transfer.galleries.tile import Tile

SUFFIX = ".gallery"
CAPTIONS = "captions.jsonl"
MOST_BYTES = 300_000
"""Pictures beyond this size are left out."""


def gallery_folder(record: Path) -> Path:
    """Return the folder of a record's pictures."""
    return record.with_name(record.name.removesuffix(".json") + SUFFIX)


def keep_gallery(record: Path, draw: Callable[[], Sequence[Tile]]) -> None:
    """Draw and write the pictures of a record; a failure is one line, since the record counts.

    Those of an earlier record go in any case: they would illustrate other numbers.
    """
    try:
        remove_gallery(record)
        tiles = draw()
        if tiles:
            write_gallery(record, tiles)
    except Exception as error:  # a picture must never cost a result
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        print(f"no pictures of {record.name}: {reason}", file=sys.stderr, flush=True)


def remove_gallery(record: Path) -> None:
    """Remove the pictures of a record, if there are any, at once for every reader."""
    folder = gallery_folder(record)
    old = _hidden(folder)
    try:
        folder.rename(old)
    except FileNotFoundError:
        return
    shutil.rmtree(old)


def _hidden(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")


def write_gallery(record: Path, tiles: Sequence[Tile]) -> Path:
    """Write the pictures in place of earlier ones; return their folder."""
    folder = gallery_folder(record)
    new = _hidden(folder)
    new.mkdir(parents=True)
    try:
        lines = []
        left = MOST_BYTES
        for number, tile in enumerate(tiles):
            if len(tile.jpeg) > left:
                continue
            left -= len(tile.jpeg)
            file = f"{number:02d}.jpg"
            (new / file).write_bytes(tile.jpeg)
            words = {"file": file, "group": tile.group, "caption": tile.caption, "name": tile.name}
            lines.append(json.dumps(words, sort_keys=True))
        (new / CAPTIONS).write_text("".join(f"{line}\n" for line in lines))
        remove_gallery(record)  # a folder cannot be replaced by a rename
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return folder
