"""Lists of the images that a draw of ours gave to each split, for whoever wants the same ones."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from transfer.datasets.images import Images
from transfer.whole_file import write_whole


def keep_list(folder: Path, name: str, splits: Mapping[str, Images]) -> dict[str, str]:
    """Write NAME-HASH.txt, a line "SPLIT FILE" per image, once; file name and full SHA-256.

    Files are named as below the data folder and sorted: the same draw has the same list anywhere.
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
