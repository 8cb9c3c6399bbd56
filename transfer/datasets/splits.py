"""Seeded splits for datasets without published ones.

The SHA-256 of a fixed seed and an image's name determines its rank in the draw. Ranks therefore do
not depend on directory order or on the version of a random generator. A missing image changes the
ranks of the others by at most one.
"""

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pretrain.running.atomic_files import write_whole
from transfer.datasets.expected import SMALL_DATA, DataError, Sizes
from transfer.datasets.images import Images

if TYPE_CHECKING:
    from transfer.datasets.scenes import Scenes
    from transfer.datasets.segmented import Segmented

Split = TypeVar("Split", Images, "Scenes", "Segmented")
SEED = "held-out 0"
FRACTION_SEED = "labelled 0"
"""Seed of `draw_balanced_fraction`. Another spelling would draw other images."""


def seeded_ranks(
    names: NDArray[np.bytes_], groups: NDArray[np.integer[Any]], seed: str = SEED
) -> NDArray[np.int64]:
    """Return each image's rank (n,) in its group's random order."""
    digests = (hashlib.sha256(b"%s/%s" % (seed.encode(), name)).digest()[:8] for name in names)
    draw = np.frombuffer(b"".join(digests), dtype=">u8")
    order = np.lexsort((draw, groups))
    sorted_groups = groups[order]
    starts = np.flatnonzero(np.diff(sorted_groups, prepend=sorted_groups[:1] - 1))
    sizes = np.diff(starts, append=len(order))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order)) - np.repeat(starts, sizes)
    return ranks


def balanced_split(trainval: Images, split: str, *, val_per_class: int) -> Images:
    """Return train or val; val has equally many images per class."""
    return _select(trainval, split, draw_from_each_class(trainval, val_per_class))


def draw_from_each_class(images: Images, count: int) -> NDArray[np.bool_]:
    """Return whether each image (n,) is among `count` drawn per class.

    Raises DataError if the draw would leave no image of a class.
    """
    counts = np.bincount(images.label_array, minlength=len(images.class_names))
    short = np.flatnonzero(counts <= count)
    if len(short):
        first = short[0]
        raise DataError(
            f"{len(short)} of {len(counts)} classes, first {images.class_names[first]!r} with "
            f"{counts[first]} images, have no image left once {count} are held out: add images, "
            f"remove these classes, or enter smaller numbers in {SMALL_DATA}"
        )
    return seeded_ranks(images.source.encoded_names, images.label_array) < count


def with_val(images: Images, split: str, sizes: Sizes) -> Images:
    """Return a split; train and val are drawn balanced over classes.

    images: trainval or test.
    """
    if split in ("trainval", "test"):
        return images
    val_per_class = sizes.held_out("val") // len(images.class_names)
    return balanced_split(images, split, val_per_class=val_per_class)


def uniform_split(images: Split, split: str, sizes: Sizes) -> Split:
    """Return a split; train and val are drawn uniformly from trainval `images`."""
    if split in ("trainval", "test"):
        return images
    num_val = sizes.held_out("val")
    if num_val >= len(images):
        raise DataError(
            f"{len(images)} images in trainval, but val alone needs {num_val}; "
            "the dataset is incomplete"
        )
    single_group = np.zeros(len(images), dtype=np.int64)
    ranks = seeded_ranks(images.source.encoded_names, single_group)
    return _select(images, split, ranks < num_val)


def without(images: Split, names: Collection[str]) -> Split:
    """Return all images except these, such as tolerated broken ones."""
    if not names:
        return images
    return images.subset([i for i in range(len(images)) if images.name(i) not in names])


def images_per_class(images: Images, fraction: float) -> int:
    """Return the images per class that `draw_balanced_fraction` draws if fraction < 1."""
    return max(2, round(fraction * len(images) / len(images.class_names)))


def draw_balanced_fraction(images: Images, fraction: float) -> Images:
    """Draw a fraction of the images, equally many per class.

    At least two images per class are drawn; a fraction of 1.0 returns all images. A smaller draw is
    a subset of every larger one.
    """
    if fraction == 1.0:
        return images
    counts = np.bincount(images.label_array, minlength=len(images.class_names))
    per_class = images_per_class(images, fraction)
    if counts.min() < per_class:
        raise DataError(
            f"class {images.class_names[int(counts.argmin())]} has {counts.min()} images, "
            f"but {per_class} are to be labeled; the dataset is incomplete"
        )
    ranks = seeded_ranks(images.source.encoded_names, images.label_array, FRACTION_SEED)
    return images.subset(np.flatnonzero(ranks < per_class))


def _select(trainval: Split, split: str, in_val: NDArray[np.bool_]) -> Split:
    return trainval.subset(np.flatnonzero(in_val if split == "val" else ~in_val))


def write_list(folder: Path, name: str, splits: Mapping[str, Images]) -> dict[str, str]:
    """Write a list of the splits' images; return name and SHA-256.

    The file NAME-HASH.txt has one line "SPLIT FILE" per image. Lines are sorted, and paths are
    relative to the data folder, so the same draw gives the same list on every machine. An existing
    list is kept.
    """
    lines = [f"{s} {images.name(i)}\n" for s, images in splits.items() for i in range(len(images))]
    text = "".join(sorted(lines)).encode()
    digest = hashlib.sha256(text).hexdigest()
    file = folder / f"{name}-{digest[:12]}.txt"
    if not file.exists():
        write_whole(file, text, "--runs")
    return {"file": file.name, "sha256": digest}
