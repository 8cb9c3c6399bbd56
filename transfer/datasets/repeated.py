"""Find images that are in two splits, or twice in one.

Images are compared by name and by content. A name is a file's path, or only the file name if that
identifies an image (`DatasetInfo.image_names`). Copies have different names but equal bytes, or
equal pixels in memory. Published datasets contain a few copies, so up to 1 % is only a remark.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pretrain.running import stop
from pretrain.running.reading import read_bytes
from transfer.datasets.images import ImageFiles, ImageSplit

ALLOWED_COPIES = 0.01
"""Maximum fraction of copies in a split; published datasets are below it."""
NUM_NAMED = 20
"""Copies that a remark names."""

Member = tuple[str, int]
"""Split and index of an image."""
Splits = Mapping[str, ImageSplit]
"""The disjoint splits by name: trainval and test."""
Keys = Mapping[str, NDArray[np.int64]]
"""Hash (n,) of each image, by split; 0 for images that are not compared."""


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """Images that are listed or stored more than once."""

    problems: tuple[str, ...]
    """One line per type of problem, with the first image."""
    num_images: int
    """Number of images with a problem."""
    notes: tuple[str, ...]
    """Lines that list the copies if they are few."""
    copied_percent: float
    """Percentage of test images with a copy among the training images."""


def find_repeated(splits: Splits, contents: Keys, image_names: str) -> Repeated:
    """Return the images in two splits, or more than once in one.

    contents: hashes of size and ends of each file, or of pixels. Only files with equal hashes are
    read. image_names: pattern of file names that identify an image, or "".
    """
    problems: list[str] = []
    notes: list[str] = []
    listed = _groups({split: _hash_names(images, image_names) for split, images in splits.items()})
    shared = [group[::-1] for group in listed if _is_shared(group)]
    if shared:
        example = _equation(splits, shared[0])
        problems.append(f"test: {_num_images(len(shared))} also in trainval, first {example}")
    for split in splits:
        inside = [[member for member in group if member[0] == split] for group in listed]
        twice = [group for group in inside if len(group) > 1]
        if twice:
            example = _equation(splits, twice[0])
            problems.append(
                f"{split}: {_num_images(len(twice))} listed more than once, first {example}"
            )
    copies = _copies(splits, contents, {member for group in listed for member in group})
    # trainval is the first split, so each group starts with a training image
    copied = [[m, group[0]] for group in copies for m in group if m[0] == "test"]
    num_images, percent = len(listed), 0.0
    if copied:
        num_test = len(splits["test"])
        percent = 100 * len(copied) / num_test
        summary = f"test: {len(copied):,} of {num_test:,} images ({percent:.3g} %) are copies of "
        summary += "training images"
        if len(copied) > ALLOWED_COPIES * num_test:
            problems.append(f"{summary}, first {_equation(splits, copied[0])}")
            num_images += len(copied)
        else:
            notes = [summary, *(f"  {_equation(splits, pair)}" for pair in copied[:NUM_NAMED])]
    return Repeated(
        problems=tuple(problems),
        num_images=num_images,
        notes=tuple(notes),
        copied_percent=percent,
    )


def _hash_names(images: ImageSplit, image_names: str) -> NDArray[np.int64]:
    """Return the hash (n,) of each file name that matches the pattern, or of the path."""
    names: list[bytes] = images.source.encoded_names.tolist()
    if image_names:
        matches = re.compile(image_names.encode()).fullmatch
        files = (name.rpartition(b"/")[2] for name in names)
        names = [file if matches(file) else name for file, name in zip(files, names, strict=True)]
    return np.array([hash(name) for name in names], dtype=np.int64)


def _groups(keys: Keys) -> list[list[Member]]:
    """Return the images with equal nonzero keys."""
    if not keys:
        return []
    flat = np.concatenate(list(keys.values()))
    _, group_of, counts = np.unique(flat, return_inverse=True, return_counts=True)
    is_repeated = (counts[group_of] > 1) & (flat != 0)
    groups: dict[int, list[Member]] = defaultdict(list)
    start = 0
    for split, split_keys in keys.items():
        for i in np.flatnonzero(is_repeated[start : start + len(split_keys)]).tolist():
            groups[int(group_of[start + i])].append((split, i))
        start += len(split_keys)
    return list(groups.values())


def _copies(splits: Splits, contents: Keys, listed: set[Member]) -> list[list[Member]]:
    """Return images of equal content that are in both splits.

    listed: images with repeated names, which are already reported.
    """
    equal: dict[bytes, list[Member]] = defaultdict(list)
    for group in _groups(contents):
        members = [member for member in group if member not in listed]
        for split, i in members if _is_shared(members) else ():
            stop.exit_if_requested()
            source = splits[split].source
            with suppress(OSError):  # deleted since it was checked
                if isinstance(source, ImageFiles):
                    content = read_bytes(source.folder / source.name(i))
                else:
                    content = source.content(i)
                equal[hashlib.sha256(content).digest()].append((split, i))
    return list(filter(_is_shared, equal.values()))


def _is_shared(members: Sequence[Member]) -> bool:
    """Return whether images of both splits are among these."""
    return len({split for split, _ in members}) > 1


def _equation(splits: Splits, members: Sequence[Member]) -> str:
    """Return the distinct names of images, joined by "="."""
    return " = ".join(dict.fromkeys(splits[split].name(i) for split, i in members))


def _num_images(count: int) -> str:
    return "1 image is" if count == 1 else f"{count:,} images are"
