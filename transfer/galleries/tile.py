"""Galleries: selection of images, thumbnails, and the folder RECORD.gallery/."""

import hashlib
import io
import json
import shutil
import sys
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
MAX_BYTES = 300_000
"""Maximum size of all pictures of a gallery; others are skipped."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A picture with its caption."""

    jpeg: bytes
    group: str
    """Outcome, such as found, missed or confused; galleries are sorted by it."""
    caption: str
    name: str
    """Path of the image in the data folder."""


def select_images(names: Sequence[str]) -> list[int]:
    """Return NUM_IMAGES indices, selected by a hash of file names.

    So the same images are shown for every backbone and on every machine.
    """
    digests = [hashlib.sha256(PurePosixPath(name).name.encode()).digest() for name in names]
    return sorted(sorted(range(len(names)), key=lambda i: digests[i])[:NUM_IMAGES])


def thumbnail(image: Image.Image, side_px: int = SIDE_PX) -> Image.Image:
    """Return the image, at most side_px wide and high."""
    small = image.convert("RGB")
    small.thumbnail((side_px, side_px), Image.Resampling.LANCZOS, reducing_gap=None)
    return small


def side_by_side(left: Image.Image, right: Image.Image) -> Image.Image:
    """Concatenate two images of equal size, with a white gap."""
    pair = Image.new("RGB", (left.width + GAP_PX + right.width, left.height), "white")
    pair.paste(left, (0, 0))
    pair.paste(right, (left.width + GAP_PX, 0))
    return pair


def jpeg(image: Image.Image) -> bytes:
    """Return the image as a JPEG file."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return buffer.getvalue()


def gallery_folder(record: Path) -> Path:
    """Return the folder of a record's pictures."""
    return record.with_name(record.name.removesuffix(".json") + SUFFIX)


def update_gallery(record: Path, draw: Callable[[], Sequence[Tile]], *, finished: str) -> None:
    """Draw and write the gallery of a record; failures are only printed.

    The gallery of an earlier record is always deleted, since it shows other results. The captions,
    written last, are lines of JSON; their file does not have the suffix .json, which marks records.

    draw: returns the pictures. finished: time of the record; the report shows only galleries with
    the time of their record.
    """
    folder = gallery_folder(record)
    try:
        shutil.rmtree(folder, ignore_errors=True)
        tiles = draw()
        if not tiles:
            return
        folder.mkdir(parents=True)
        lines, remaining_bytes = [], MAX_BYTES
        for number, tile in enumerate(tiles):
            if len(tile.jpeg) <= remaining_bytes:
                remaining_bytes -= len(tile.jpeg)
                entry = asdict(tile) | {"file": f"{number:02d}.jpg", "record_finished": finished}
                (folder / entry["file"]).write_bytes(entry.pop("jpeg"))
                lines.append(json.dumps(entry, sort_keys=True) + "\n")
        (folder / CAPTIONS).write_text("".join(lines))
    except Exception as error:  # a failed gallery must not fail the evaluation
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        print(f"no pictures of {record.name}: {reason}", file=sys.stderr, flush=True)
