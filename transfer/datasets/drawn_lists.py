"""Lists of the images that a seeded draw put into each split, so that others can use the same."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from transfer.datasets.images import Images
from transfer.running.atomic_files import write_whole


def write_list(folder: Path, name: str, splits: Mapping[str, Images]) -> dict[str, str]:
    """Write NAME-HASH.txt with a line "SPLIT FILE" per image; return its name and SHA-256.

    Lines are sorted and name files below the data folder, so the same draw has the same list on
    every machine. A list that exists is kept.
    """
    lines = sorted(
        f"{split} {images.name(i)}\n"
        for split, images in splits.items()
        for i in range(len(images))
    )
    text = "".join(lines).encode()
    digest = hashlib.sha256(text).hexdigest()
    file = folder / f"{name}-{digest[:12]}.txt"
    if not file.exists():
        write_whole(file, text, "--runs")
    return {"file": file.name, "sha256": digest}
