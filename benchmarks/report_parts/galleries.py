"""Pictures that cells keep beside their records, and the papers' figures, embedded in the page."""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.drawing.files import metadata_of
from benchmarks.drawing.neighbors import evenly
from benchmarks.pages.records import FIGURES
from benchmarks.report_parts.task_charts import Named
from transfer.galleries.mistakes import CORRUPTED, FALSE, MISSED, MOST_WRONG, TURNED
from transfer.galleries.tile import CAPTIONS, MOST_BYTES, gallery_folder

MOST_RECORDS = 2
"""Records of one task whose pictures are shown: those of the best backbones."""
MOST_QUERIES = 6
INTRODUCTIONS = {
    MOST_WRONG: "Images of which the classifier is most sure to be of another class.",
    TURNED: "Images about whose rotation the classifier is most wrong, turned counterclockwise as "
    "it saw them.",
    CORRUPTED: "For each corruption the image of which the classifier is most sure to be of "
    "another class, the surest first; no photograph twice.",
    **dict.fromkeys(
        (FALSE, MISSED),
        "False positives: images without a class that rank high for it. Missed positives: images "
        "with a class that rank low for it. At most one of each kind per class.",
    ),
}
"""Words above the pictures of classifiers, by group of a picture."""
JPEG = b"\xff\xd8\xff"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One picture with its words."""

    source: str
    """Address that holds the whole image."""
    group: str
    caption: str
    name: str
    """File of the image."""


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Pictures of one record, in the order in which they were kept."""

    backbone: str
    pictures: tuple[Picture, ...]

    @property
    def ranked(self) -> bool:
        """Return whether the pictures show wrong places in the rankings for classes."""
        return any(picture.group in (FALSE, MISSED) for picture in self.pictures)

    @property
    def introduction(self) -> str:
        """Return what the pictures of a classifier show."""
        groups = [picture.group for picture in self.pictures if picture.group in INTRODUCTIONS]
        return INTRODUCTIONS[groups[0] if groups else MOST_WRONG]


Queries = tuple[str, tuple[tuple[Picture, ...], ...]]
"""A backbone, and queries with their nearest images, each a row."""


def galleries_of(folder: Path, records: Sequence[Named]) -> list[Gallery]:
    """Return the pictures of a task's best backbones; a torn gallery is shown as far as it goes.

    Pictures of another record than the one that is beside them now are left out.
    """
    found: list[Gallery] = []
    for name, result in records:
        pictures = tuple(_pictures(gallery_folder(folder / result.file), result.finished))
        if pictures and len(found) < MOST_RECORDS:
            found.append(Gallery(backbone=name, pictures=pictures))
    return found


def _pictures(folder: Path, finished: str) -> Iterator[Picture]:
    try:
        lines = (folder / CAPTIONS).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        try:
            words = json.loads(line)
            # older galleries do not store it
            if words.get("record_finished", finished) != finished:
                continue
            path = folder / Path(words["file"]).name  # never a file elsewhere
            content = path.read_bytes()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if source := jpeg_address(content):
            yield Picture(
                source=source,
                group=str(words.get("group", "")),
                caption=str(words.get("caption", "")),
                name=str(words.get("name", "")),
            )


def queries_of(records: Sequence[Named]) -> list[Queries]:
    """Return a few queries with their nearest images, of a task's best backbones."""
    found = []
    for name, result in records[:MOST_RECORDS]:
        rows = [
            tuple(_described(image, query["class"]) for image in (query, *query["neighbors"]))
            for query in result.details.get("queries", ())
        ]
        if whole := [row for row in rows if row[0].source and len(row) > 1]:
            found.append((name, tuple(evenly(whole, MOST_QUERIES))))
    return found


def _described(image: Mapping[str, Any], of_class: str) -> Picture:
    """Return an image that a record holds; without a readable thumbnail its source is empty."""
    try:
        source = jpeg_address(base64.b64decode(image["jpeg_base64"], validate=True))
    except binascii.Error:
        source = ""
    return Picture(
        source=source,
        group="same class" if image["class"] == of_class else "other class",
        caption=image["class"],
        name=image["file"],
    )


def jpeg_address(content: bytes) -> str:
    """Return the address that holds a JPEG; empty for other content and for large files."""
    if not content.startswith(JPEG) or len(content) > MOST_BYTES:
        return ""
    return f"data:image/jpeg;base64,{base64.b64encode(content).decode()}"


LARGEST_BYTES = 1_000_000
"""Largest figure that is embedded."""


def figures(results: Path) -> list[tuple[str, str]]:
    """Return title and address of the SVG files of a results folder in order of their names.

    The address holds the whole image, and is empty for one that is too large. In an image element,
    a browser runs no script of an SVG and loads nothing for it.
    """
    found = []
    for path in sorted((results / FIGURES).rglob("*.svg")):
        source = ""
        if path.stat().st_size <= LARGEST_BYTES:
            text = base64.b64encode(path.read_bytes()).decode()
            source = f"data:image/svg+xml;base64,{text}"
        title = metadata_of(path).get("title") or path.stem.replace("_", " ")
        found.append((title, source))
    return found
