"""Images that are in two splits, twice in one, or under two labels: by name, and as copies.

A name is a file's path. Where the published file names identify an image in whatever folder
(`DatasetInfo.image_names`), the name counts without its folders. Copies have other names and the
same bytes, or the same pixels in memory. Published sets hold a few, so up to 1 % is a remark.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pretrain.running import stop
from pretrain.running.reading import read_bytes
from transfer.datasets.images import ImageArrays, ImageFiles, Images, ImageSplit

PAIRS = (
    *(("trainval", "test"), ("train", "test"), ("val", "test")),
    *(("trainval", "trainval"), ("test", "test")),
    *(("train", "val"), ("train", "train"), ("val", "val")),
)
"""Splits that must not share an image, in the order of their report; equal: listed once."""
ALLOWED_COPIES = 0.01
"""Largest fraction of a split's images that may be copies; published sets are below it."""
NUM_NAMED = 20
"""Copies that a remark names."""

Member = tuple[str, int]
"""Split and position of an image."""


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """Images that are listed or stored more than once."""

    problems: tuple[str, ...]
    """A line per kind, with the first image."""
    num_images: int
    """Images that the problems are about."""
    notes: tuple[str, ...]
    """Lines that name copies which are few enough."""
    copied_percent: float
    """Test images with a copy among the training images, in percent of the test images."""


def content_key(*content: object) -> int:
    """Return a number that equal contents share within this process; 0 stands for no content."""
    return hash(content) or 1


def find_repeated(
    splits: Mapping[str, ImageSplit], keys: Mapping[str, NDArray[np.int64]], image_names: str
) -> Repeated:
    """Return the images that are in two of the splits, or more than once in one.

    keys: `content_key` (n,) of the images of disjoint splits, 0 for broken ones. Only files whose
    keys are equal are read. image_names: pattern of file names that identify an image, or "".
    """
    named = {split: _identities(images, image_names) for split, images in splits.items()}
    problems, reported = _listed_again(splits, named)
    copies = _equal_contents(splits, keys, named, reported)
    notes: list[str] = []
    num_images, copied_percent = len(reported), 0.0
    copied = [
        (("test", i), learned[0])
        for members in copies
        if (learned := [member for member in members if member[0] != "test"])
        for split, i in members
        if split == "test"
    ]
    if copied:
        num_test = len(splits["test"])
        copied_percent = 100 * len(copied) / num_test
        what = f"test: {len(copied):,} of {num_test:,} images ({copied_percent:.3g} %) are copies "
        what += "of training images"
        if len(copied) > ALLOWED_COPIES * num_test:
            problems.append(f"{what}, first {_equation(splits, copied[0])}")
            num_images += len(copied)
        else:
            notes += [what, *_named_copies(splits, copied)]
    for split, images in splits.items():
        groups = [[m for m in members if m[0] == split] for members in copies]
        torn = [group for group in groups if len(_labels(images, group)) > 1]
        num_torn = sum(len(group) - 1 for group in torn)
        if not torn:
            continue
        what = f"{split}: {num_torn:,} of {len(images):,} images are copies under another label"
        if num_torn > ALLOWED_COPIES * len(images):
            problems.append(f"{what}, first {_two_labels(splits, torn[0])}")
            num_images += num_torn
        else:
            notes += [what, *_named_copies(splits, torn)]
    return Repeated(
        problems=tuple(problems),
        num_images=num_images,
        notes=tuple(notes),
        copied_percent=copied_percent,
    )


def _identities(images: ImageSplit, image_names: str) -> list[bytes]:
    """Return what identifies each image: its file name if that has the pattern, else its path."""
    paths: list[bytes] = images.source.encoded_names.tolist()
    if not image_names:
        return paths
    matches = re.compile(image_names.encode()).fullmatch
    files = [path.rpartition(b"/")[2] for path in paths]
    return [file if matches(file) else path for file, path in zip(files, paths, strict=True)]


def _listed_again(
    splits: Mapping[str, ImageSplit], named: Mapping[str, list[bytes]]
) -> tuple[list[str], set[bytes]]:
    """Return a line for each kind of name that is listed again, and all these names."""
    problems: list[str] = []
    reported: set[bytes] = set()
    unique = {split: set(names) for split, names in named.items()}
    for first, second in PAIRS:
        if first not in named or second not in named:
            continue
        if first == second:
            again = _listed_twice(named[first]) - reported
            problems += _describe_twice(first, splits, named[first], again)
        else:
            again = (unique[first] & unique[second]) - reported
            problems += _describe_shared(first, second, splits, named, again)
        reported |= again
    return problems, reported


def _listed_twice(names: list[bytes]) -> set[bytes]:
    if len(set(names)) == len(names):  # the usual case, which needs no count
        return set()
    return {name for name, count in Counter(names).items() if count > 1}


def _describe_shared(
    first: str,
    second: str,
    splits: Mapping[str, ImageSplit],
    named: Mapping[str, list[bytes]],
    both: set[bytes],
) -> list[str]:
    """Return a line on the names that two splits share, if there are any."""
    if not both:
        return []
    i = next(i for i, name in enumerate(named[second]) if name in both)
    j = named[first].index(named[second][i])
    files = list(dict.fromkeys([splits[second].name(i), splits[first].name(j)]))
    advice = "; if they are different images, rename them" if len(files) > 1 else ""
    return [f"{second}: {_num_images(both)} also in {first}, first {' = '.join(files)}{advice}"]


def _describe_twice(
    split: str, splits: Mapping[str, ImageSplit], names: list[bytes], twice: set[bytes]
) -> list[str]:
    """Return a line on the names that a split lists more than once, by their labels."""
    places: dict[bytes, list[Member]] = defaultdict(list)
    for i, name in enumerate(names):
        if name in twice:
            places[name].append((split, i))
    lines = []
    labels = {name: _labels(splits[split], members) for name, members in places.items()}
    torn = [members for name, members in places.items() if len(labels[name]) > 1]
    same = [members for name, members in places.items() if len(labels[name]) < 2]
    if torn:
        where = _two_labels(splits, torn[0])
        lines.append(f"{split}: {_num_images(torn)} listed under two labels, first {where}")
    if same:
        where = _equation(splits, same[0])
        lines.append(f"{split}: {_num_images(same)} listed more than once, first {where}")
    return lines


def _num_images(images: Collection[object]) -> str:
    return "1 image is" if len(images) == 1 else f"{len(images):,} images are"


def _equal_contents(
    splits: Mapping[str, ImageSplit],
    keys: Mapping[str, NDArray[np.int64]],
    named: Mapping[str, list[bytes]],
    reported: set[bytes],
) -> list[list[Member]]:
    """Return groups of images with equal contents that are in train and test, or differ in label.

    Images that the lists repeat are left out.
    """
    if not keys:
        return []
    flat = np.concatenate(list(keys.values()))
    _, group_of, counts = np.unique(flat, return_inverse=True, return_counts=True)
    again = (counts[group_of] > 1) & (flat != 0)
    groups: dict[int, list[Member]] = defaultdict(list)
    start = 0
    for split, own in keys.items():
        for i in np.flatnonzero(again[start : start + len(own)]).tolist():
            if named[split][i] not in reported:
                groups[int(group_of[start + i])].append((split, i))
        start += len(own)
    equal: dict[bytes, list[Member]] = defaultdict(list)
    for members in groups.values():
        if _matters(splits, members):
            for member in members:
                stop.exit_if_requested()
                with suppress(OSError):  # it has gone since it was checked
                    equal[_digest(splits, member)].append(member)
    return [members for members in equal.values() if _matters(splits, members)]


def _matters(splits: Mapping[str, ImageSplit], members: Sequence[Member]) -> bool:
    """Return whether images, if they are equal, are in train and test or under two labels."""
    of_split: dict[str, list[Member]] = defaultdict(list)
    for split, i in members:
        of_split[split].append((split, i))
    if "test" in of_split and len(of_split) > 1:
        return True
    return any(len(_labels(splits[split], own)) > 1 for split, own in of_split.items())


def _digest(splits: Mapping[str, ImageSplit], member: Member) -> bytes:
    """Return a hash of a whole file, or of pixels in memory."""
    split, i = member
    source = splits[split].source
    if isinstance(source, ImageFiles):
        return hashlib.sha256(read_bytes(source.folder / source.name(i))).digest()
    return hashlib.sha256(source.content(i)).digest()


def array_keys(source: ImageArrays) -> NDArray[np.int64]:
    """Return the `content_key` (n,) of each image in memory."""
    keys = (content_key(source.content(i)) for i in range(len(source)))
    return np.fromiter(keys, np.int64, len(source))


def _labels(images: ImageSplit, members: Iterable[Member]) -> list[str]:
    """Return the different labels of images of one split; none where images have no labels."""
    if not isinstance(images, Images):
        return []
    labels = [images.label_array[i] for _, i in members]
    if images.label_array.ndim == 1:
        return [images.class_names[k] for k in dict.fromkeys(map(int, labels))]
    return list(dict.fromkeys(", ".join(np.array(images.class_names)[x == 1]) for x in labels))


def _two_labels(splits: Mapping[str, ImageSplit], members: Sequence[Member]) -> str:
    """Return the names of the first two images of different labels, and these labels."""
    images, first = splits[members[0][0]], members[0]
    other = next(m for m in members if len(_labels(images, [first, m])) > 1)
    classes = " and ".join(_labels(images, [first, other]))
    return f"{_equation(splits, [first, other])} ({classes})"


def _equation(splits: Mapping[str, ImageSplit], members: Iterable[Member]) -> str:
    """Return the different names of images, with "=" between them."""
    return " = ".join(dict.fromkeys(splits[split].name(i) for split, i in members))


def _named_copies(
    splits: Mapping[str, ImageSplit], groups: Sequence[Sequence[Member]]
) -> Iterable[str]:
    """Yield a line per copy, and one that counts those beyond NUM_NAMED."""
    yield from (f"  {_equation(splits, group)}" for group in groups[:NUM_NAMED])
    if len(groups) > NUM_NAMED:
        yield f"  and {len(groups) - NUM_NAMED:,} more"
