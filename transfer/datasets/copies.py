"""Find test images that are equal to training images, under the same or another name.

Images are equal if their files have equal bytes, or if their pixels in memory are equal. Published
datasets contain a few copies, so up to 1 % is only a remark.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from pretrain.running import stop
from pretrain.running.reading import read_bytes
from transfer.datasets.images import ImageFiles, ImageSplit

Keys = Mapping[str, NDArray[np.int64]]
"""Hash (n,) of each image, by split; 0 for images that are not compared."""


def find_copies(splits: Mapping[str, ImageSplit], keys: Keys) -> list[tuple[str, str]]:
    """Return the names of test images, each with an equal training image.

    splits: trainval and test; if one is missing, the result is empty. keys: hashes of size and ends
    of each file, or of pixels. Only files with equal hashes are read.
    """
    if len(splits) < 2:
        return []
    shared = np.intersect1d(keys["trainval"], keys["test"])
    first_names: dict[bytes, str] = {}
    copies = []
    for split in ("trainval", "test"):
        source = splits[split].source
        for i in np.flatnonzero(np.isin(keys[split], shared[shared != 0])).tolist():
            stop.exit_if_requested()
            with suppress(OSError):  # deleted since it was checked
                if isinstance(source, ImageFiles):
                    content = read_bytes(source.folder / source.name(i))
                else:
                    content = source.content(i)
                digest = hashlib.sha256(content).digest()
                if split == "trainval":
                    first_names.setdefault(digest, source.name(i))
                elif digest in first_names:
                    copies.append((source.name(i), first_names[digest]))
    return copies
