"""Expected numbers of images and classes, published or of small data.

A folder of small datasets contains `small-data.json`: {key: {"classes": L, "counts": {split:
images}}}. The generator writes this file. An excerpt of a real dataset may be listed in it, too.
Then only the splits in the entry are checked. Seeded splits are drawn with the same sizes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pretrain.running.errors import SuiteError
from pretrain.running.reading import read_bytes

SMALL_DATA = "small-data.json"


class DataError(SuiteError, ValueError):
    """Error for a missing, incomplete or broken dataset; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Number of classes L, and of images per split, of a dataset."""

    classes: int
    counts: Mapping[str, int]
    drawn: bool = False
    """`generate` wrote the files, and may therefore replace them."""

    @property
    def origin(self) -> Literal["generated", "excerpt"]:
        """Return "generated" or "excerpt", as records name the state of small data."""
        return "generated" if self.drawn else "excerpt"

    def held_out(self, split: str) -> int:
        """Return the size of a drawn split.

        Raises DataError if `small-data.json` does not give it.
        """
        if split not in self.counts:
            raise DataError(
                f"{SMALL_DATA} does not say how many images to hold out; enter {split} there"
            )
        return self.counts[split]


def small_sizes(data: Path) -> dict[str, Sizes]:
    """Return the content of `small-data.json`; empty if the file is missing."""
    file = data / SMALL_DATA
    if not file.exists():
        return {}
    try:
        return {
            key: Sizes(
                classes=int(entry["classes"]),
                counts={split: int(count) for split, count in entry["counts"].items()},
                drawn=bool(entry.get("drawn", False)),
            )
            for key, entry in json.loads(read_bytes(file)).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{file}: it cannot be read as {{key: {{'classes': L, 'counts': {{split: images}}}}}} "
            f"({type(error).__name__}: {error}); correct it, or delete it if the data are complete"
        ) from error


def mark_small(data: Path, key: str, sizes: Sizes) -> None:
    """Write one dataset's entry to `small-data.json` atomically."""
    from pretrain.running.atomic_files import write_whole  # only needed to write

    entries = {
        k: {"classes": s.classes, "counts": dict(s.counts), "drawn": s.drawn}
        for k, s in sorted((small_sizes(data) | {key: sizes}).items())
    }
    write_whole(data / SMALL_DATA, (json.dumps(entries, indent=1) + "\n").encode(), "--data")
