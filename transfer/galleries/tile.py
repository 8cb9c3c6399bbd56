"""Pictures, the choice of images, and the folder RECORD.gallery/, written whole or not at all."""

import hashlib
import io
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from PIL import Image

NUM_IMAGES = 12
SIDE_PX = 224
"""Longest side of a thumbnail."""
GAP_PX = 6
QUALITY = 72
SUFFIX = ".gallery"
CAPTIONS = "captions.jsonl"
MOST_BYTES = 300_000
"""Pictures of a record beyond this size are left out."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One picture with what it shows."""

    jpeg: bytes
    group: str
    """Kind of the outcome, such as found, missed or confused; a gallery is ordered by it."""
    caption: str
    name: str
    """File of the image below the data folder."""


def chosen_images(names: Sequence[str]) -> list[int]:
    """Return the places of a fixed handful of images, by a hash of their file names.

    The same images are chosen for every backbone, and on every machine.
    """
    digests = [hashlib.sha256(PurePosixPath(name).name.encode()).digest() for name in names]
    return sorted(sorted(range(len(names)), key=lambda i: digests[i])[:NUM_IMAGES])


def thumbnail(image: Image.Image, side_px: int = SIDE_PX) -> Image.Image:
    """Return the image with its longest side at most so long."""
    small = image.convert("RGB")
    small.thumbnail((side_px, side_px), Image.Resampling.LANCZOS, reducing_gap=None)
    return small


def side_by_side(left: Image.Image, right: Image.Image) -> Image.Image:
    """Return two images of one size with a white gap between them."""
    whole = Image.new("RGB", (left.width + GAP_PX + right.width, left.height), "white")
    whole.paste(left, (0, 0))
    whole.paste(right, (left.width + GAP_PX, 0))
    return whole


def jpeg(image: Image.Image) -> bytes:
    """Return the image as a JPEG file."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return buffer.getvalue()


def gallery_folder(record: Path) -> Path:
    """Return the folder of a record's pictures."""
    return record.with_name(record.name.removesuffix(".json") + SUFFIX)


def keep_gallery(record: Path, draw: Callable[[], Sequence[Tile]], *, finished: str = "") -> None:
    """Draw and write the pictures of a record; a failure is one line, since the record counts.

    Those of an earlier record go in any case: they would illustrate other numbers. finished: time
    of the record, by which the report knows whose pictures they are.
    """
    try:
        shutil.rmtree(gallery_folder(record), ignore_errors=True)
        tiles = draw()
        if tiles:
            write_gallery(record, tiles, finished=finished)
    except Exception as error:  # a picture must never cost a result
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        print(f"no pictures of {record.name}: {reason}", file=sys.stderr, flush=True)


def write_gallery(record: Path, tiles: Sequence[Tile], *, finished: str = "") -> Path:
    """Write the pictures in place of earlier ones; return their folder.

    The captions are lines of JSON, each with the time of the record if it is given. The folder
    holds no .json file, because those are records.
    """
    folder = gallery_folder(record)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as private:
        new = Path(private) / folder.name
        new.mkdir()
        lines, left = [], MOST_BYTES
        for number, tile in enumerate(tiles):
            if len(tile.jpeg) <= left:
                left -= len(tile.jpeg)
                words = asdict(tile) | {"file": f"{number:02d}.jpg"}
                words |= {"record_finished": finished} if finished else {}
                (new / words["file"]).write_bytes(words.pop("jpeg"))
                lines.append(json.dumps(words, sort_keys=True) + "\n")
        (new / CAPTIONS).write_text("".join(lines))
        shutil.rmtree(folder, ignore_errors=True)  # a folder cannot be replaced by a rename
        new.rename(folder)
    return folder
