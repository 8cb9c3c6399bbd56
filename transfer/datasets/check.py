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
from numpy.typing import NDArray

from pretrain.pixels.decoding import JPEG_START
from pretrain.running import stop
from pretrain.running.console import progress
from pretrain.running.reading import retry_reads
from transfer.datasets.catalog import (
    SPLITS,
    dataset_info,
    expected_sizes,
    open_any,
    sizes_before_description,
)
from transfer.datasets.expected import SMALL_DATA, DataError, Sizes, mark_small, small_sizes
from transfer.datasets.images import (
    ImageArrays,
    ImageFiles,
    Images,
    read_pixels,
    states_of,
    upright_size,
)
from transfer.datasets.info import AnySplit
from transfer.datasets.repeated import array_keys, content_key, find_repeated
from transfer.datasets.scenes import Scenes, name_differences
from transfer.datasets.segmented import Segmented

DISJOINT = ("trainval", "test")
"""Every image is in exactly one of these."""
ENDS = {JPEG_START: b"\xff\xd9", b"\x89PNG\r\n\x1a\n": b"IEND\xaeB`\x82"}
"""First and last bytes of a complete file."""
BLOCK = 512
"""Number of files per block; a stop waits until the block is checked."""
COUNTED: Mapping[type, str] = {Images: "image", Scenes: "object that counts", Segmented: "pixel"}
"""Unit that each class needs in every split, by type of dataset.

Difficult objects and crowds do not count.
"""
NO_DRAWN_SPLITS = "without train and val, which tasks that choose a learning rate need"
NUM_NAMED = 20
"""Problems that an error message quotes; check-data prints all."""


RECODED: Mapping[str, Literal["recoded", "recoded excerpt"]] = {
    "": "recoded",
    "excerpt": "recoded excerpt",
}
"""Map the state of data to their state with recoded pixels."""


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
    found: bool = True
    unreadable: tuple[str, ...] = ()
    """Listed images that are missing or broken, or have a wrong size.

    Images with a broken mask count, too.
    """
    faults: tuple[str, ...] = ()
    """Broken annotations, which are skipped: lines of `problems`."""
    num_lost: Mapping[str, int] = field(default_factory=dict)
    """Images per disjoint split that are skipped because their annotations are unusable."""
    num_repeated: int = 0
    """Images in two splits, twice in one or with two labels.

    Copies count if they are many.
    """
    copied_percent: float = 0.0
    """Percentage of test images with a copy among the training images."""
    fatal: tuple[str, ...] = ()
    """Lines of `problems` that --tolerate does not cover: unreadable splits, wrong classes."""
    notes: tuple[str, ...] = ()
    """Remarks, also on a complete dataset."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint of each opened split, computed before its files were read."""
    files: Mapping[str, tuple[ImageFiles, ...]] = field(default_factory=dict, compare=False)
    """Files of each disjoint split that are read after it is opened."""
    states: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)
    """`ImageFiles.state` of these files, computed before they were read."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the training and test images, as records store it."""
        return combine_fingerprints(self.fingerprints)

    @property
    def ok(self) -> bool:
        """Return whether the dataset exists, is complete and readable."""
        return self.found and not self.problems

    @property
    def num_bad(self) -> int:
        """Return the number of bad images and broken annotations.

        Bad images are missing, too many, repeated or unreadable. An image without usable
        annotations is also missing in the counts; it counts once.
        """
        differences = {
            split: abs(count - expected) for split, (count, expected) in self.counts.items()
        }
        drawn_differences = sum(
            differences[split] for split in ("train", "val") if self.counts.get(split, (0, 0))[0]
        )
        bad_trainval = max(
            differences.get("trainval", 0), drawn_differences, self.num_lost.get("trainval", 0)
        )
        bad_test = max(differences.get("test", 0), self.num_lost.get("test", 0))
        num_bad = bad_trainval + bad_test + len(self.unreadable) + self.num_repeated
        return num_bad + len(self.faults)

    def fit(self, tolerated: int) -> bool:
        """Return whether the dataset has no fatal problem and few bad images.

        tolerated: maximum number of bad images.
        """
        return self.found and not self.fatal and self.num_bad <= tolerated

    @property
    def first_problems(self) -> str:
        """Return the first problems, one per line, and how many follow."""
        num_hidden = len(self.problems) - NUM_NAMED
        last_line = [f"and {num_hidden} more"] if num_hidden > 0 else []
        return "\n  ".join([*self.problems[:NUM_NAMED], *last_line])


def disjoint_splits(named: Collection[str]) -> list[str]:
    """Return the named splits, without parts of a named trainval."""
    return [s for s in SPLITS if s in named and (s in DISJOINT or "trainval" not in named)]


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
    marked = as_excerpt or small_sizes(data).get(key)
    report = Report(
        key=key,
        small=marked.origin if marked else "",
        counts={split: (0, expected) for split, expected in sizes.counts.items()},
        classes=(0, sizes.classes),
        problems=(),
    )
    if missing := info.missing_path(data):
        return replace(report, found=False, problems=(f"{missing} does not exist",))
    splits, unopened = open_splits(key, data, [s for s in SPLITS if s in sizes.counts], sizes)
    num_images = {s: len(splits[s]) if s in splits else 0 for s in sizes.counts}
    counts = {s: (num_images[s], expected or num_images[s]) for s, expected in sizes.counts.items()}
    miscounted = [
        f"{split}: {count:,} images found, {expected:,} expected"
        for split, (count, expected) in counts.items()
        if count != expected
    ]
    unlisted = [s for s in DISJOINT if s in info.counts and s not in sizes.counts]
    opened = splits | open_splits(key, data, unlisted, sizes)[0]
    # computed before any file is read, so that a change during the check is detected
    fingerprints = {split: images.fingerprint for split, images in opened.items()}
    files = {split: opened[split].files for split in DISJOINT if split in opened}
    states = states_of(files)
    pools = {split: splits[split] for split in disjoint_splits(sizes.counts) if split in splits}
    num_classes, wrong_classes = count_classes(key, pools, sizes.classes, report.small == "excerpt")
    wrong_classes += differing_classes(splits)
    if num_classes != sizes.classes:
        wrong_classes.append(f"{num_classes} complete classes found, {sizes.classes} expected")
    broken, keys = _check_files(key, pools, decode=decode)
    repeated = find_repeated(opened, keys, info.image_names)
    # drawn splits have the same faults as their trainval
    published = {"trainval" if s != "test" else s: images for s, images in pools.items()}
    scenes = {s: images for s, images in published.items() if isinstance(images, Scenes)}
    faults = [line for images in scenes.values() for line in images.faults]
    skipped = [line for images in scenes.values() for line in images.lost]
    recoded = any(isinstance(images, Images) and images.recoded for images in opened.values())
    notes = dict.fromkeys(note for pool in pools.values() for note in pool.notes)
    notes |= dict.fromkeys(repeated.notes)
    return replace(
        report,
        small=RECODED.get(report.small, report.small) if recoded else report.small,
        counts=counts,
        classes=(num_classes, sizes.classes),
        problems=(
            *(*unopened, *miscounted, *repeated.problems, *_broken_lines(data, broken)),
            *(*skipped, *faults, *wrong_classes),
        ),
        unreadable=tuple(broken),
        faults=tuple(faults),
        num_lost={split: len(images.lost) for split, images in scenes.items()},
        num_repeated=repeated.num_images,
        copied_percent=repeated.copied_percent,
        fatal=(*unopened, *wrong_classes),
        notes=tuple(notes),
        fingerprints=fingerprints,
        files=files,
        states=states,
    )


def require(key: str, data: Path, *, tolerated: int) -> Report:
    """Return the report of a usable dataset; otherwise raise DataError."""
    report = check(key, data, decode=False)
    info = dataset_info(key)
    if not report.found:
        command = f" Or: python -m transfer get-data {key} --data {data}" if info.sources else ""
        raise DataError(f"{info.title}: {report.problems[0]}. {info.how_to_get}{command}")
    if report.fit(tolerated):
        return report
    num_classes, num_expected = report.classes
    broken = f" and {len(report.faults)} annotations broken" if report.faults else ""
    notes = "".join(f"\n  {note}" for note in report.notes)
    excerpt = ""
    if report.fatal or any(count != expected for count, expected in report.counts.values()):
        excerpt = " If it is an excerpt on purpose, register it: python -m transfer "
        excerpt += f"register-subset {key} --data {data}"
    raise DataError(
        f"{info.title}: {report.num_bad - len(report.faults)} images are missing, too many, "
        f"repeated or unusable{broken}, {tolerated} are tolerated; {num_classes} classes found, "
        f"{num_expected} expected:\n  {report.first_problems}{notes}"
        f"\nSee all: python -m transfer check-data --data {data}. {info.how_to_get}{excerpt}"
    )


def render(reports: Sequence[Report]) -> str:
    """Return a table of datasets, with problems and instructions below it."""
    header = ["data", "found", "classes", *SPLITS, "unreadable", "state"]
    lines = table([header, *(_row(report) for report in reports)])
    for report in reports:
        if not report.ok:
            info = dataset_info(report.key)
            lines += ["", f"{report.key} ({info.title})", *(f"  {p}" for p in report.problems)]
            lines.append(f"  how to get it: {info.how_to_get}")
            if info.sources:
                lines.append(f"  by command: python -m transfer get-data {report.key}")
        if report.notes:
            lines += ["", f"{report.key}, remarks", *(f"  {note}" for note in report.notes)]
    return "\n".join(lines)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def render_found(reports: Sequence[Report]) -> str:
    """Return `render` of existing datasets, and the names of missing ones."""
    existing = [report for report in reports if report.found]
    keys = [report.key for report in reports if not report.found]
    lines = [render(existing), ""] if existing else []
    if keys:
        gettable = [key for key in keys if dataset_info(key).sources]
        lines.append(f"missing: {', '.join(keys)}")
        if gettable:
            lines.append(f"to download: python -m transfer get-data {' '.join(gettable)}")
        lines.append(f"manual instructions: python -m transfer check-data {keys[0]}")
    return "\n".join(lines).rstrip()


def _row(report: Report) -> list[str]:
    state = "ok" if report.ok else "incomplete" if report.found else "missing"
    return [
        report.key,
        (report.small or "yes") if report.found else "no",
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
    info = dataset_info(key)
    splits: dict[str, AnySplit] = {}
    unopened: dict[str, list[str]] = {}
    for name in names:
        try:
            splits[name] = open_any(key, data, name, sizes=sizes)
        except DataError as error:
            reason = str(error).removeprefix(f"{info.title}, split {name}: ")
            unopened.setdefault(reason.removesuffix(f". {info.how_to_get}"), []).append(name)
    return splits, [
        f"{info.title}, split {', '.join(names)}: {reason}" for reason, names in unopened.items()
    ]


def has_labels(pools: Mapping[str, AnySplit]) -> bool:
    """Return whether the labels are per image, not objects or masks."""
    return all(isinstance(pool, Images) for pool in pools.values())


def count_classes(
    key: str, pools: Mapping[str, AnySplit], expected: int, excerpt: bool
) -> tuple[int, list[str]]:
    """Return the number of complete classes, and a line per missing class.

    A complete class has images in every split. A small excerpt of a detection or segmentation
    dataset may lack objects of some classes. For such an excerpt, all classes that every annotation
    file names count, and only a split without any object is reported. For an excerpt of labeled
    images, no class is reported if the number of classes is as expected.
    """
    # published names, so that a missing class folder is reported by its name
    listed = dataset_info(key).known_classes()
    all_names = set(listed) if len(listed) == expected else set()
    all_names.update(name for images in pools.values() for name in images.class_names)
    present = {split: _present_classes(images) for split, images in pools.items()}
    units = {
        split: next(text for kind, text in COUNTED.items() if isinstance(images, kind))
        for split, images in pools.items()
    }
    if excerpt and not has_labels(pools):
        empty = [f"{split}: no {units[split]}" for split, names in present.items() if not names]
        named = [set(images.class_names) for images in pools.values()]
        return len(set.intersection(*named)) if named else 0, empty
    absent = [
        f"{split}: class {name} has no {units[split]}"
        for split, names in present.items()
        for name in sorted(all_names - names)
    ]
    num_classes = len(set.intersection(*present.values())) if present else 0
    return num_classes, [] if excerpt and num_classes == expected else absent


def differing_classes(splits: Mapping[str, AnySplit]) -> list[str]:
    """Return a line for each split with other classes than the first."""
    classes_of = {split: images.class_names for split, images in splits.items()}
    first = next(iter(classes_of), "")
    return [
        f"{split}: its classes differ from {first}: {name_differences(classes, classes_of[first])}"
        for split, classes in classes_of.items()
        if classes != classes_of[first]
    ]


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
) -> tuple[dict[str, str], dict[str, NDArray[np.int64]]]:
    """Return the faults of broken images, and the content keys.

    Faults are by image name, keys (see `content_key`) by split (n,). A file is broken if it is
    missing, cannot be decoded, or has another size or a broken mask.
    """
    broken: dict[str, str] = {}
    for pool in pools.values():
        if isinstance(pool, Segmented):
            for i, fault in enumerate(pool.mask_check[0]):
                if fault:
                    broken[pool.name(i)] = f"its mask {pool.masks.name(i)}: {fault}"
    keys = {s: array_keys(p.source) for s, p in pools.items() if isinstance(p.source, ImageArrays)}
    sources = {s: p.source for s, p in pools.items() if isinstance(p.source, ImageFiles)}
    if not sources:
        return broken, keys
    check_file = partial(_check_file, decode=decode)
    with (
        progress("check", key, sum(map(len, sources.values()))) as counter,
        ThreadPoolExecutor(max_workers=min(16, 2 * (os.cpu_count() or 1))) as threads,
    ):
        for split, source in sources.items():
            images, split_keys = pools[split], np.zeros(len(source), dtype=np.int64)
            for start in range(0, len(source), BLOCK):
                stop.exit_if_requested()
                block = range(start, min(start + BLOCK, len(source)))
                files = [source.folder / source.name(i) for i in block]
                sizes: list[tuple[int, ...] | None] = [None] * len(block)
                if isinstance(images, Scenes):
                    sizes = [tuple(images.sizes[i].tolist()) for i in block]
                for i, (fault, content) in zip(
                    block, threads.map(check_file, files, sizes), strict=True
                ):
                    split_keys[i] = content
                    if fault:
                        broken[source.name(i)] = fault
                counter.add(len(block))
            keys[split] = split_keys
    return broken, keys


def _check_file(file: Path, size: tuple[int, ...] | None, *, decode: bool) -> tuple[str, int]:
    """Return the fault of an image file, and its `content_key`.

    The fault is "" for a valid file, the key 0 for a broken one. An image that does not have the
    annotated size is broken, too.
    """
    try:
        start, end, num_bytes = _read_ends(file)
        if decode or not _is_complete(start, end):
            read_pixels(file)
        image_size = None if size is None else upright_size(file)
    except FileNotFoundError:
        return "missing", 0
    except (DataError, OSError) as error:
        return str(error.__cause__ or error), 0
    if image_size != size:
        return f"{image_size} px, annotated as {size}", 0
    return "", content_key(num_bytes, start, end)


def _is_complete(start: bytes, end: bytes) -> bool:
    return any(start.startswith(first) and end.endswith(last) for first, last in ENDS.items())


def _read_ends(file: Path) -> tuple[bytes, bytes, int]:
    """Return the first 8 and last 16 bytes of a file, and its size."""

    def read() -> tuple[bytes, bytes, int]:
        with file.open("rb") as content:
            start = content.read(8)
            num_bytes = content.seek(0, os.SEEK_END)
            content.seek(max(0, num_bytes - 16))
            return start, content.read(), num_bytes

    return retry_reads(file, read)


def _broken_lines(data: Path, broken: Mapping[str, str]) -> list[str]:
    """Return one line per broken file, but only one per missing folder."""
    folders = Counter(Path(name).parent for name, fault in broken.items() if fault == "missing")
    missing = {folder: n for folder, n in folders.items() if not (data / folder).is_dir()}
    lines = [
        f"folder {folder.as_posix()} is missing, {n:,} images" for folder, n in missing.items()
    ]
    return lines + [f"{n}: {fault}" for n, fault in broken.items() if Path(n).parent not in missing]


def register_subsets(
    keys: Collection[str], data: Path, *, tolerated: int = 0
) -> dict[str, tuple[Sizes, tuple[str, ...]]]:
    """Register datasets as excerpts in `small-data.json`; return their sizes and remarks.

    Splits that are drawn from trainval get sizes from it: val takes a tenth of each class, and at
    least one image. If `check` would find more bad images than tolerated, nothing is written and
    DataError is raised.
    """
    described = {key: _describe(key, data, tolerated) for key in keys}
    earlier = small_sizes(data)
    for key, (sizes, notes) in described.items():
        if key in earlier and earlier[key].counts != sizes.counts:
            replaced = ", ".join(f"{split} {n:,}" for split, n in earlier[key].counts.items())
            described[key] = sizes, (*notes, f"replaces the sizes {replaced} of {SMALL_DATA}")
        mark_small(data, key, sizes)
    return described


def _describe(key: str, data: Path, tolerated: int) -> tuple[Sizes, tuple[str, ...]]:
    """Return the sizes of an existing excerpt, and remarks."""
    info = dataset_info(key)
    if missing := info.missing_path(data):
        raise DataError(f"{missing} does not exist. {info.how_to_get}")
    named = [s for s in DISJOINT if s in info.counts]
    splits, problems = open_splits(key, data, named, sizes_before_description(key, data))
    problems += differing_classes(splits)
    if problems:
        raise DataError(f"{'; '.join(problems)}. {info.how_to_get}")
    classes, _ = count_classes(key, splits, info.num_classes, excerpt=True)
    if not classes:
        raise DataError(
            f"{info.title}: no class has images in each of {', '.join(splits)}; if that is right, "
            f"enter the sizes in {data / SMALL_DATA} by hand"
        )
    sizes = Sizes(classes=classes, counts={s: len(images) for s, images in splits.items()})
    notes: tuple[str, ...] = ()
    if "train" in info.counts and "trainval" in splits:
        sizes, notes = _with_drawn_splits(key, data, sizes, splits["trainval"])
    report = check(key, data, decode=False, as_excerpt=sizes)
    if report.fit(tolerated):
        return sizes, (*notes, *report.problems, *report.notes)
    raise DataError(
        f"{info.title}: nothing is written, since check-data would refuse the excerpt:\n"
        f"  {report.first_problems}\n"
        "Correct this, or tolerate a number of bad images, as a run does: --tolerate N"
    )


def _with_drawn_splits(
    key: str, data: Path, sizes: Sizes, trainval: AnySplit
) -> tuple[Sizes, tuple[str, ...]]:
    """Return the sizes including train and val, or a remark why not."""
    if not isinstance(trainval, Images):
        how = f"to draw them from objects or masks, enter their sizes in {SMALL_DATA}"
        note = f"{NO_DRAWN_SPLITS}: {how}"
        return sizes, (note,)
    num_classes, total = len(trainval.class_names), len(trainval)
    val = max(1, total // num_classes // 10) * num_classes
    drawn_sizes = replace(sizes, counts={**sizes.counts, "train": total - val, "val": val})
    drawn, problems = open_splits(key, data, ("train", "val"), drawn_sizes)
    if problems:  # for example a val list without its train list
        return sizes, (f"{NO_DRAWN_SPLITS}: {problems[0]}",)
    # published lists, if any, decide the sizes
    counts = {split: len(images) for split, images in drawn.items()}
    return replace(sizes, counts={**sizes.counts, **counts}), ()
