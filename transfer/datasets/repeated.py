"""Find images in two splits, twice in one, or with two labels.

Images are compared by name and by content. A name is a file's path, or only the file name if that
identifies an image (`DatasetInfo.image_names`). Copies have different names but equal bytes, or
equal pixels in memory. Published datasets contain a few copies, so up to 1 % is only a remark.
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
"""Splits that must not share images, or (if equal) repeat them."""
ALLOWED_COPIES = 0.01
"""Maximum fraction of copies in a split; published datasets are below it."""
NUM_NAMED = 20
"""Copies that a remark names."""

Member = tuple[str, int]
"""Split and index of an image."""


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


def content_key(*content: object) -> int:
    """Return a nonzero hash, valid in this process.

    0 is reserved for missing content.
    """
    return hash(content) or 1


def find_repeated(
    splits: Mapping[str, ImageSplit], keys: Mapping[str, NDArray[np.int64]], image_names: str
) -> Repeated:
    """Return the images in two splits, or more than once in one.

    keys: `content_key` (n,) of the images of disjoint splits, 0 for broken ones. Only files with
    equal keys are read. image_names: pattern of file names that identify an image, or "".
    """
    names = {split: _identities(images, image_names) for split, images in splits.items()}
    problems, reported = _listed_again(splits, names)
    copies = _equal_contents(splits, keys, names, reported)
    notes: list[str] = []
    num_images, copied_percent = len(reported), 0.0
    copied = [
        (("test", i), train_members[0])
        for members in copies
        if (train_members := [member for member in members if member[0] != "test"])
        for split, i in members
        if split == "test"
    ]
    if copied:
        num_test = len(splits["test"])
        copied_percent = 100 * len(copied) / num_test
        summary = (
            f"test: {len(copied):,} of {num_test:,} images ({copied_percent:.3g} %) are copies "
        )
        summary += "of training images"
        if len(copied) > ALLOWED_COPIES * num_test:
            problems.append(f"{summary}, first {_equation(splits, copied[0])}")
            num_images += len(copied)
        else:
            notes += [summary, *_named_copies(splits, copied)]
    for split, images in splits.items():
        groups = [[m for m in members if m[0] == split] for members in copies]
        relabeled = [group for group in groups if len(_labels(images, group)) > 1]
        num_relabeled = sum(len(group) - 1 for group in relabeled)
        if not relabeled:
            continue
        summary = (
            f"{split}: {num_relabeled:,} of {len(images):,} images are copies under another label"
        )
        if num_relabeled > ALLOWED_COPIES * len(images):
            problems.append(f"{summary}, first {_two_labels(splits, relabeled[0])}")
            num_images += num_relabeled
        else:
            notes += [summary, *_named_copies(splits, relabeled)]
    return Repeated(
        problems=tuple(problems),
        num_images=num_images,
        notes=tuple(notes),
        copied_percent=copied_percent,
    )


def _identities(images: ImageSplit, image_names: str) -> list[bytes]:
    """Return file names that match the pattern, and paths of other images."""
    paths: list[bytes] = images.source.encoded_names.tolist()
    if not image_names:
        return paths
    matches = re.compile(image_names.encode()).fullmatch
    files = [path.rpartition(b"/")[2] for path in paths]
    return [file if matches(file) else path for file, path in zip(files, paths, strict=True)]


def _listed_again(
    splits: Mapping[str, ImageSplit], names: Mapping[str, list[bytes]]
) -> tuple[list[str], set[bytes]]:
    """Return one line per type of repetition, and all repeated names."""
    problems: list[str] = []
    reported: set[bytes] = set()
    unique = {split: set(split_names) for split, split_names in names.items()}
    for first, second in PAIRS:
        if first not in names or second not in names:
            continue
        if first == second:
            repeated = _listed_twice(names[first]) - reported
            problems += _describe_twice(first, splits, names[first], repeated)
        else:
            repeated = (unique[first] & unique[second]) - reported
            problems += _describe_shared(first, second, splits, names, repeated)
        reported |= repeated
    return problems, reported


def _listed_twice(names: list[bytes]) -> set[bytes]:
    if len(set(names)) == len(names):  # the common case, faster than counting
        return set()
    return {name for name, count in Counter(names).items() if count > 1}


def _describe_shared(
    first: str,
    second: str,
    splits: Mapping[str, ImageSplit],
    names: Mapping[str, list[bytes]],
    shared: set[bytes],
) -> list[str]:
    """Return a line about the names that two splits share, if any."""
    if not shared:
        return []
    i = next(i for i, name in enumerate(names[second]) if name in shared)
    j = names[first].index(names[second][i])
    files = list(dict.fromkeys([splits[second].name(i), splits[first].name(j)]))
    advice = "; if they are different images, rename them" if len(files) > 1 else ""
    return [f"{second}: {_num_images(shared)} also in {first}, first {' = '.join(files)}{advice}"]


def _describe_twice(
    split: str, splits: Mapping[str, ImageSplit], names: list[bytes], twice: set[bytes]
) -> list[str]:
    """Return lines about names that a split lists more than once."""
    members_of: dict[bytes, list[Member]] = defaultdict(list)
    for i, name in enumerate(names):
        if name in twice:
            members_of[name].append((split, i))
    lines = []
    labels = {name: _labels(splits[split], members) for name, members in members_of.items()}
    relabeled = [members for name, members in members_of.items() if len(labels[name]) > 1]
    same = [members for name, members in members_of.items() if len(labels[name]) < 2]
    if relabeled:
        example = _two_labels(splits, relabeled[0])
        lines.append(f"{split}: {_num_images(relabeled)} listed under two labels, first {example}")
    if same:
        example = _equation(splits, same[0])
        lines.append(f"{split}: {_num_images(same)} listed more than once, first {example}")
    return lines


def _num_images(images: Collection[object]) -> str:
    return "1 image is" if len(images) == 1 else f"{len(images):,} images are"


def _equal_contents(
    splits: Mapping[str, ImageSplit],
    keys: Mapping[str, NDArray[np.int64]],
    names: Mapping[str, list[bytes]],
    reported: set[bytes],
) -> list[list[Member]]:
    """Return copies that are in train and test, or differ in labels.

    Images with repeated names are skipped, since these are already reported.
    """
    if not keys:
        return []
    flat = np.concatenate(list(keys.values()))
    _, group_of, counts = np.unique(flat, return_inverse=True, return_counts=True)
    is_repeated = (counts[group_of] > 1) & (flat != 0)
    groups: dict[int, list[Member]] = defaultdict(list)
    start = 0
    for split, split_keys in keys.items():
        for i in np.flatnonzero(is_repeated[start : start + len(split_keys)]).tolist():
            if names[split][i] not in reported:
                groups[int(group_of[start + i])].append((split, i))
        start += len(split_keys)
    equal: dict[bytes, list[Member]] = defaultdict(list)
    for members in groups.values():
        if _matters(splits, members):
            for member in members:
                stop.exit_if_requested()
                with suppress(OSError):  # deleted since it was checked
                    equal[_digest(splits, member)].append(member)
    return [members for members in equal.values() if _matters(splits, members)]


def _matters(splits: Mapping[str, ImageSplit], members: Sequence[Member]) -> bool:
    """Return whether equal images would be a problem.

    They are if they are in train and test, or have two labels.
    """
    of_split: dict[str, list[Member]] = defaultdict(list)
    for split, i in members:
        of_split[split].append((split, i))
    if "test" in of_split and len(of_split) > 1:
        return True
    return any(
        len(_labels(splits[split], split_members)) > 1 for split, split_members in of_split.items()
    )


def _digest(splits: Mapping[str, ImageSplit], member: Member) -> bytes:
    """Return a hash of a file's content, or of pixels in memory."""
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
    """Return the distinct labels of some images, if they have labels."""
    if not isinstance(images, Images):
        return []
    labels = [images.label_array[i] for _, i in members]
    if images.label_array.ndim == 1:
        return [images.class_names[k] for k in dict.fromkeys(map(int, labels))]
    return list(dict.fromkeys(", ".join(np.array(images.class_names)[x == 1]) for x in labels))


def _two_labels(splits: Mapping[str, ImageSplit], members: Sequence[Member]) -> str:
    """Return two images with different labels, with names and labels."""
    images, first = splits[members[0][0]], members[0]
    second = next(m for m in members if len(_labels(images, [first, m])) > 1)
    classes = " and ".join(_labels(images, [first, second]))
    return f"{_equation(splits, [first, second])} ({classes})"


def _equation(splits: Mapping[str, ImageSplit], members: Iterable[Member]) -> str:
    """Return the distinct names of images, joined by "="."""
    return " = ".join(dict.fromkeys(splits[split].name(i) for split, i in members))


def _named_copies(
    splits: Mapping[str, ImageSplit], groups: Sequence[Sequence[Member]]
) -> Iterable[str]:
    """Yield one line per copy; after NUM_NAMED lines, the remaining number."""
    yield from (f"  {_equation(splits, group)}" for group in groups[:NUM_NAMED])
    if len(groups) > NUM_NAMED:
        yield f"  and {len(groups) - NUM_NAMED:,} more"
