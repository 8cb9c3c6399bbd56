"""Check the images, classes and annotations of a dataset; register excerpts."""

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from pretrain.pixels.decoding import JPEG_START
from pretrain.running import stop
from pretrain.running.console import aligned, progress
from pretrain.running.reading import retry_reads
from transfer.datasets.catalog import (
    DAMAGES,
    SPLITS,
    damage,
    dataset_info,
    expected_sizes,
    instructions,
)
from transfer.datasets.expected import DataError, Sizes, mark_small, small_sizes
from transfer.datasets.images import ImageArrays, Images, read_pixels, upright_size
from transfer.datasets.info import AnySplit
from transfer.datasets.repeated import Keys, find_repeated
from transfer.datasets.scenes import Scenes
from transfer.datasets.segmented import Segmented

DISJOINT = ("trainval", "test")
"""Every image is in exactly one of these."""
ENDS = ((JPEG_START, b"\xff\xd9"), (b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"))
"""First and last bytes of a complete file."""
BLOCK = 512
"""Number of files per block; a stop waits until the block is checked."""
NUM_NAMED = 20
"""Problems that an error message quotes; check-data prints all."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of checking one dataset."""

    key: str
    small: Literal["", "generated", "excerpt", "recoded", "recoded excerpt"]
    """State of data that is not the complete published dataset; otherwise empty.

    "generated" and "excerpt": compared with `small-data.json` instead of the published numbers.
    "recoded": the pixels are not the published ones.
    """
    counts: dict[str, tuple[int, int]]
    """Images per split: found, expected."""
    classes: tuple[int, int]
    """Classes with images in trainval and in test: found, expected."""
    problems: tuple[str, ...]
    """One line each, unreadable files and broken annotations included."""
    exists: bool = True
    unreadable: tuple[str, ...] = ()
    """Listed images that are missing or broken, or have a wrong size.

    Images with a broken mask count, too.
    """
    faults: tuple[str, ...] = ()
    """Broken annotations, which are skipped: lines of `problems`."""
    num_skipped: Mapping[str, int] = field(default_factory=dict)
    """Images per disjoint split that are skipped because their annotations are unusable."""
    num_repeated: int = 0
    """Images in two splits or twice in one; copies count if they are many."""
    copied_percent: float = 0.0
    """Percentage of test images with a copy among the training images."""
    fatal: tuple[str, ...] = ()
    """Lines of `problems` that --tolerate does not cover: unreadable splits, wrong classes."""
    notes: tuple[str, ...] = ()
    """Remarks, also on a complete dataset."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint of each opened split, computed before its files were read."""
    states: Mapping[str, list[str]] = field(default_factory=dict, compare=False)
    """`ImageSplit.states` of each disjoint split, computed before its files were read."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the training and test images, as records store it."""
        return combine_fingerprints(self.fingerprints)

    @property
    def ok(self) -> bool:
        """Return whether the dataset exists, is complete and readable."""
        return self.exists and not self.problems

    @property
    def num_bad(self) -> int:
        """Return the number of bad images and broken annotations.

        Bad images are missing, too many, repeated or unreadable. An image without usable
        annotations is also missing in the counts; it counts once.
        """
        wrong = {split: abs(count - expected) for split, (count, expected) in self.counts.items()}
        # train and val are parts of trainval
        in_parts = wrong.get("train", 0) + wrong.get("val", 0)
        num_skipped = self.num_skipped
        miscounted = max(wrong.get("trainval", 0), in_parts, num_skipped.get("trainval", 0))
        miscounted += max(wrong.get("test", 0), num_skipped.get("test", 0))
        return miscounted + len(self.unreadable) + self.num_repeated + len(self.faults)

    def fit(self, tolerated: int) -> bool:
        """Return whether the dataset has no fatal problem and few bad images.

        tolerated: maximum number of bad images.
        """
        return self.exists and not self.fatal and self.num_bad <= tolerated

    def may_be_subset(self, tolerated: int) -> bool:
        """Return whether `register_subsets` would accept the dataset: only images are missing.

        tolerated: maximum number of other bad images.
        """
        others = len(self.unreadable) + self.num_repeated + len(self.faults)
        others += sum(self.num_skipped.values())
        # a subset may lack the lists of train and val
        pools = [self.counts[split] for split in DISJOINT if split in self.counts]
        return (
            all(0 < found <= expected for found, expected in pools)
            and any(found < expected for found, expected in pools)
            and others <= tolerated
        )

    @property
    def first_problems(self) -> str:
        """Return the first problems, one per line, and how many follow."""
        num_hidden = len(self.problems) - NUM_NAMED
        last_line = [f"and {num_hidden} more"] if num_hidden > 0 else []
        return "\n  ".join([*self.problems[:NUM_NAMED], *last_line])


def combine_fingerprints(fingerprints: Mapping[str, str]) -> str:
    """Return the fingerprint of a dataset, given the fingerprints of its splits."""
    return "-".join(fingerprints[split][:12] for split in DISJOINT if split in fingerprints)


def check(key: str, data: Path, *, decode: bool, as_excerpt: Sizes | None = None) -> Report:
    """Check every image of one dataset.

    decode: decode all images. Otherwise, only the first and last bytes are read, and only files
    that look truncated or are neither JPEG nor PNG are decoded. If annotations give an image
    size, it is compared with the file's. as_excerpt: expected sizes, as if from
    `small-data.json`.
    """
    info, sizes = dataset_info(key), as_excerpt or expected_sizes(key, data)
    registered = as_excerpt or small_sizes(data).get(key)
    report = Report(
        key=key,
        small=registered.origin if registered else "",
        counts={split: (0, expected) for split, expected in sizes.counts.items()},
        classes=(0, sizes.classes),
        problems=(),
    )
    if missing := info.missing_path(data):
        return replace(report, exists=False, problems=(f"{missing} does not exist or is empty",))
    names = [s for s in SPLITS if s in sizes.counts or (s in DISJOINT and s in info.counts)]
    splits, unopened = open_splits(key, data, names, sizes)
    num_images = {s: len(splits[s]) if s in splits else 0 for s in sizes.counts}
    counts = {s: (num_images[s], expected or num_images[s]) for s, expected in sizes.counts.items()}
    miscounted = [
        f"{split}: {count:,} images found, {expected:,} expected"
        for split, (count, expected) in counts.items()
        if count != expected
    ]
    # computed before any file is read, so that a change during the check is detected
    fingerprints = {split: images.fingerprint for split, images in splits.items()}
    pools = {split: splits[split] for split in DISJOINT if split in splits}
    states = {split: images.states() for split, images in pools.items()}
    num_classes, wrong_classes = count_classes(key, pools, sizes.classes, report.small == "excerpt")
    wrong_classes += differing_classes(splits)
    if num_classes != sizes.classes:
        wrong_classes.append(f"{num_classes} complete classes found, {sizes.classes} expected")
    broken, contents = _check_files(key, pools, decode=decode)
    repeated = find_repeated(pools, contents, info.image_names)
    scenes = {s: images for s, images in pools.items() if isinstance(images, Scenes)}
    faults = [line for images in scenes.values() for line in images.faults]
    skipped = [line for images in scenes.values() for line in images.lost]
    small = report.small
    if any(isinstance(images, Images) and images.recoded for images in pools.values()):
        small = "recoded excerpt" if small == "excerpt" else "recoded"
    notes = dict.fromkeys(note for pool in pools.values() for note in pool.notes)
    return replace(
        report,
        small=small,
        counts=counts,
        classes=(num_classes, sizes.classes),
        problems=(
            *(*unopened, *miscounted, *repeated.problems, *_broken_lines(data, broken)),
            *(*skipped, *faults, *wrong_classes),
        ),
        unreadable=tuple(broken),
        faults=tuple(faults),
        num_skipped={split: len(images.lost) for split, images in scenes.items()},
        num_repeated=repeated.num_images,
        copied_percent=repeated.copied_percent,
        fatal=(*unopened, *wrong_classes),
        notes=(*notes, *repeated.notes),
        fingerprints=fingerprints,
        states=states,
    )


def require(key: str, data: Path, *, tolerated: int) -> Report:
    """Return the report of a usable dataset; otherwise raise DataError."""
    report = check(key, data, decode=False)
    title = dataset_info(key).title
    if not report.exists:
        raise DataError(f"{title}: {report.problems[0]}. {instructions(key, data)}")
    if report.fit(tolerated):
        return report
    num_classes, num_expected = report.classes
    broken = f" and {len(report.faults)} annotations broken" if report.faults else ""
    advice = f"See all: python -m transfer check-data --data {data}. {instructions(key, data)}"
    if report.may_be_subset(tolerated):
        option = f" --tolerate {tolerated}" if tolerated else ""
        command = f"python -m transfer register-subset {key} --data {data}{option}"
        advice += f" If it is a subset on purpose: {command}"
    raise DataError(
        f"{title}: {report.num_bad - len(report.faults)} images are missing, too many, repeated "
        f"or unusable{broken}, {tolerated} are tolerated; {num_classes} classes found, "
        f"{num_expected} expected:\n  "
        + "\n  ".join([report.first_problems, *report.notes])
        + f"\n{advice}"
    )


def render(reports: Sequence[Report]) -> str:
    """Return a table of datasets, with problems and instructions below it."""
    header = ["data", "found", "classes", *SPLITS, "unreadable", "state"]
    lines = aligned([header, *(_row(report) for report in reports)])
    for report in reports:
        if not report.ok:
            title = dataset_info(report.key).title
            lines += ["", f"{report.key} ({title})", *(f"  {p}" for p in report.problems)]
            lines.append(f"  how to get it: {instructions(report.key)}")
            if report.may_be_subset(0):
                command = f"python -m transfer register-subset {report.key}"
                lines.append(f"  if it is a subset on purpose: {command}")
        if report.notes:
            lines += ["", f"{report.key}, remarks", *(f"  {note}" for note in report.notes)]
    return "\n".join(lines)


def render_found(reports: Sequence[Report]) -> str:
    """Return `render` of existing datasets, and the names of missing ones."""
    existing = [report for report in reports if report.exists]
    keys = [report.key for report in reports if not report.exists]
    lines = [render(existing)] if existing else []
    if keys:
        lines += ["", f"missing: {', '.join(keys)}"]
        lines.append("to download one: python -m transfer get-data KEY")
        lines.append("manual instructions: python -m transfer check-data KEY")
    return "\n".join(lines).lstrip()


def _row(report: Report) -> list[str]:
    state = "ok" if report.ok else "incomplete" if report.exists else "missing"
    return [
        report.key,
        (report.small or "yes") if report.exists else "no",
        _count_of_expected(report.classes),
        *(_count_of_expected(report.counts[s]) if s in report.counts else "-" for s in SPLITS),
        str(len(report.unreadable)),
        state,
    ]


def _count_of_expected(pair: tuple[int, int]) -> str:
    """Return "1,020" if the number is as expected, otherwise "1,019 of 1,020"."""
    count, expected = pair
    return f"{count:,}" if count == expected else f"{count:,} of {expected:,}"


def open_splits(
    key: str, data: Path, names: Sequence[str], sizes: Sizes
) -> tuple[dict[str, AnySplit], list[str]]:
    """Return the readable splits, and one error message per problem."""
    splits: dict[str, AnySplit] = {}
    unopened: dict[str, list[str]] = {}
    for name in names:
        try:
            splits[name] = dataset_info(key).read(data, name, sizes)
        except DAMAGES as error:
            unopened.setdefault(damage(error), []).append(name)
    return splits, [f"split {', '.join(names)}: {reason}" for reason, names in unopened.items()]


def count_classes(
    key: str, pools: Mapping[str, AnySplit], expected: int, excerpt: bool
) -> tuple[int, list[str]]:
    """Return the number of complete classes, and a line per missing class.

    A complete class has images in every split; difficult objects and crowds do not count. A small
    excerpt of a detection or segmentation dataset may lack objects of some classes. For such an
    excerpt, all classes that the annotation files name count, and only a split without any object
    is reported. For an excerpt of labeled images, no class is reported if the number of classes is
    as expected.
    """
    present = {split: _present_classes(images) for split, images in pools.items()}
    if excerpt and not all(isinstance(images, Images) for images in pools.values()):
        empty = [f"{split}: no class is in any image" for split in present if not present[split]]
        return min(len(images.class_names) for images in pools.values()), empty
    # published names, so that a missing class folder is reported by its name
    listed = dataset_info(key).known_classes()
    names = set(listed) if len(listed) == expected else set()
    names.update(name for images in pools.values() for name in images.class_names)
    absent = [
        f"{split}: class {name} is in no image"
        for split in present
        for name in sorted(names - present[split])
    ]
    num_classes = len(set.intersection(*present.values())) if present else 0
    return num_classes, [] if excerpt and num_classes == expected else absent


def differing_classes(splits: Mapping[str, AnySplit]) -> list[str]:
    """Return a line for each split with other classes than the first."""
    lines = []
    first, *others = splits or [""]
    for split in others:
        names, expected = splits[split].class_names, splits[first].class_names
        if names != expected:
            differing = sorted({*names} ^ {*expected})[:5] or "in another order"
            lines.append(f"{split}: its classes differ from those of {first}: {differing}")
    return lines


def _present_classes(images: AnySplit) -> set[str]:
    if isinstance(images, Scenes):
        present = images.objects_per_class() > 0
    elif isinstance(images, Segmented):
        present = images.mask_check[1] > 0
    elif images.label_array.ndim == 2:
        present = (images.label_array == 1).any(axis=0)
    else:
        present = np.bincount(images.label_array, minlength=len(images.class_names)) > 0
    return {name for name, in_use in zip(images.class_names, present, strict=True) if in_use}


def _check_files(
    key: str, pools: Mapping[str, AnySplit], *, decode: bool
) -> tuple[dict[str, str], Keys]:
    """Return the faults of broken images by name, and the hashes of the contents by split."""
    broken: dict[str, str] = {}
    contents = {split: np.zeros(len(images), dtype=np.int64) for split, images in pools.items()}
    with (
        progress("check", key, sum(map(len, pools.values()))) as counter,
        ThreadPoolExecutor(max_workers=min(16, 2 * (os.cpu_count() or 1))) as threads,
    ):
        for split, images in pools.items():
            check_image = partial(_check_image, images, decode)
            for start in range(0, len(images), BLOCK):
                stop.exit_if_requested()
                block = range(start, min(start + BLOCK, len(images)))
                for i, (fault, content) in zip(block, threads.map(check_image, block), strict=True):
                    contents[split][i] = content
                    if fault:
                        broken[images.name(i)] = fault
                counter.add(len(block))
    return broken, contents


def _check_image(images: AnySplit, decode: bool, i: int) -> tuple[str, int]:
    """Return the fault of an image, and a hash of its size and ends, or of its pixels.

    The fault is "" for a valid image, the hash 0 for a broken one. A file is broken if it is
    missing, cannot be decoded, does not have the annotated size, or has a broken mask.
    """
    if isinstance(images.source, ImageArrays):
        return "", hash(images.source.content(i)) or 1
    if isinstance(images, Segmented) and (fault := images.mask_check[0][i]):
        return f"its mask {images.masks.name(i)}: {fault}", 0
    file = images.source.folder / images.source.name(i)
    try:
        start, end, num_bytes = retry_reads(file, partial(_read_ends, file))
        if decode or not any(start.startswith(a) and end.endswith(z) for a, z in ENDS):
            read_pixels(file)
        if isinstance(images, Scenes):
            size, annotated = upright_size(file), tuple(images.sizes[i].tolist())
            if size != annotated:
                return f"{size} px, annotated as {annotated}", 0
    except FileNotFoundError:
        return "missing", 0
    except (DataError, OSError) as error:
        return str(error.__cause__ or error), 0
    return "", hash((num_bytes, start, end)) or 1


def _read_ends(file: Path) -> tuple[bytes, bytes, int]:
    """Return the first 8 and last 16 bytes of a file, and its size."""
    with file.open("rb") as content:
        start = content.read(8)
        num_bytes = content.seek(0, os.SEEK_END)
        content.seek(max(0, num_bytes - 16))
        return start, content.read(), num_bytes


def _broken_lines(data: Path, broken: Mapping[str, str]) -> list[str]:
    """Return one line per broken file, but only one per missing folder."""
    folders = Counter(Path(name).parent for name, fault in broken.items() if fault == "missing")
    missing = {folder: n for folder, n in folders.items() if not (data / folder).is_dir()}
    lines = [
        f"folder {folder.as_posix()} is missing, {n:,} images" for folder, n in missing.items()
    ]
    return lines + [f"{n}: {fault}" for n, fault in broken.items() if Path(n).parent not in missing]


def register_subsets(
    keys: Collection[str], data: Path, *, tolerated: int
) -> dict[str, tuple[Sizes, tuple[str, ...]]]:
    """Register datasets as excerpts in `small-data.json`; return their sizes and remarks.

    Splits that are drawn from trainval get sizes from it: val takes a tenth of the images, as many
    of each class. If `check` would find more bad images than tolerated, nothing is written and
    DataError is raised.
    """
    described = {key: _describe(key, data, tolerated) for key in keys}
    for key, (sizes, _) in described.items():
        mark_small(data, key, sizes)
    return described


def _describe(key: str, data: Path, tolerated: int) -> tuple[Sizes, tuple[str, ...]]:
    """Return the sizes of an existing excerpt, and remarks."""
    info = dataset_info(key)
    if missing := info.missing_path(data):
        raise DataError(f"{missing} does not exist or is empty. {instructions(key, data)}")
    named = [s for s in DISJOINT if s in info.counts]
    splits, problems = open_splits(key, data, named, expected_sizes(key, data))
    problems += differing_classes(splits)
    if problems:
        raise DataError(f"{info.title}: {'; '.join(problems)}. {instructions(key, data)}")
    classes, _ = count_classes(key, splits, info.num_classes, excerpt=True)
    if not classes:
        raise DataError(f"{info.title}: no class has images in each of {', '.join(splits)}")
    sizes = Sizes(classes=classes, counts={s: len(images) for s, images in splits.items()})
    notes: tuple[str, ...] = ()
    if "train" in info.counts:
        trainval = splits["trainval"]
        num_groups = len(trainval.class_names) if isinstance(trainval, Images) else 1
        val = max(1, len(trainval) // num_groups // 10) * num_groups
        drawn_counts = {**sizes.counts, "train": len(trainval) - val, "val": val}
        drawn_sizes = replace(sizes, counts=drawn_counts)
        drawn_splits, problems = open_splits(key, data, ("train", "val"), drawn_sizes)
        if problems:  # for example a val list without its train list
            reason = "without train and val, which tasks that choose a learning rate need"
            notes = (f"{reason}: {problems[0]}",)
        else:  # published lists, if any, decide the sizes
            counts = {split: len(images) for split, images in drawn_splits.items()}
            sizes = replace(sizes, counts={**sizes.counts, **counts})
    report = check(key, data, decode=False, as_excerpt=sizes)
    if report.fit(tolerated):
        return sizes, (*notes, *report.problems, *report.notes)
    raise DataError(
        f"{info.title}: nothing is written, since check-data would refuse the excerpt:\n"
        f"  {report.first_problems}\n"
        "Correct this, or tolerate a number of bad images, as a run does: --tolerate N"
    )
