"""Check that a data set is whole: its counts, classes, files and annotations."""

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from pretrain.pixels.decoding import JPEG_START
from pretrain.running import stop
from transfer.datasets.catalog import SPLITS, dataset_info, expected_sizes, open_any
from transfer.datasets.expected import DataError, small_sizes
from transfer.datasets.images import ImageFiles, decode_file, states_of, upright_size
from transfer.datasets.info import AnySplit
from transfer.datasets.scenes import Scenes
from transfer.datasets.segmented import Segmented
from transfer.running.console import progress

DISJOINT = ("trainval", "test")
"""Every image is in exactly one of these."""
ENDS = {
    JPEG_START: b"\xff\xd9",
    b"\x89PNG\r\n\x1a\n": b"IEND\xaeB`\x82",
}
"""First and last bytes of a whole file."""
BLOCK = 512
"""Files handed to the threads at a time: a stop waits for them."""
NUM_NAMED = 20
"""Problems that an error message quotes; check-data prints all."""


Small = Literal["", "generated", "excerpt"]


@dataclass(frozen=True)
class Report:
    """The result of looking at one data set."""

    key: str
    found: bool
    small: Small
    """"generated" or "excerpt" for a set that is compared with `small-data.json` instead of the
    published numbers; else empty."""
    counts: dict[str, tuple[int, int]]
    """Images per split: found, expected."""
    classes: tuple[int, int]
    """Classes with images in trainval and in test: found, expected."""
    unreadable: tuple[str, ...]
    """Images that are listed but missing, cannot be decoded, have not their annotated size, or have
    a broken mask."""
    problems: tuple[str, ...]
    """One line each, unreadable files and broken annotations included."""
    faults: tuple[str, ...] = ()
    """Broken annotations, which are left out: lines of `problems`."""
    notes: tuple[str, ...] = ()
    """Remarks on a set that is whole."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint of each split that could be opened, taken before its files were read."""
    files: Mapping[str, tuple[ImageFiles, ...]] = field(default_factory=dict, compare=False)
    """Files of each disjoint split that are read after it is opened."""
    states: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)
    """`ImageFiles.state` of these files, taken before they were read."""
    began_s: float = field(default=0.0, compare=False)
    """When the check began, by the monotonic clock."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the whole set: of its training and test images, as records store it."""
        return combine_fingerprints(self.fingerprints)

    @property
    def ok(self) -> bool:
        """Return whether the set is there, whole and readable."""
        return self.found and not self.problems

    @property
    def missing_images(self) -> int:
        """Return the number of images too few or too many, over trainval and test."""
        pairs = [self.counts[split] for split in DISJOINT if split in self.counts]
        return sum(abs(found - expected) for found, expected in pairs)

    @property
    def num_bad(self) -> int:
        """Return the images missing, too many or unreadable, and the broken annotations."""
        return self.missing_images + len(self.unreadable) + len(self.faults)


def combine_fingerprints(fingerprints: Mapping[str, str]) -> str:
    """Return the fingerprint of a set from those of its splits."""
    return "-".join(fingerprints[split][:12] for split in DISJOINT if split in fingerprints)


def _small(key: str, data: Path) -> Small:
    sizes = small_sizes(data).get(key)
    return "" if sizes is None else "generated" if sizes.drawn else "excerpt"


def check(key: str, data: Path, *, decode: bool) -> Report:
    """Look at every image of one set and return what is there and what is wrong.

    decode: decode each image in full. Otherwise only the first and last bytes are read and files
    that look cut off or are neither JPEG nor PNG are decoded. Where annotations give a size, the
    one in the file is compared with it.
    """
    began_s = time.monotonic()
    info = dataset_info(key)
    sizes = expected_sizes(key, data)
    small = _small(key, data)
    if not info.is_there(data):
        problem = f"{info.missing_path(data)} is not there"
        counts = {split: (0, n) for split, n in sizes.counts.items()}
        return Report(key, False, small, counts, (0, sizes.classes), (), (problem,))
    splits, problems = open_splits(key, data, [s for s in SPLITS if s in sizes.counts])
    sizes_found = {s: len(splits[s]) if s in splits else 0 for s in sizes.counts}
    counts = {s: (found, sizes.counts[s] or found) for s, found in sizes_found.items()}
    problems += _count_problems(counts)
    unlisted = [s for s in DISJOINT if s in info.counts and s not in sizes.counts]
    opened = splits | open_splits(key, data, unlisted)[0]
    # taken before any file is read, so that a change during the check is noticed later, too
    fingerprints = {split: images.fingerprint for split, images in opened.items()}
    files = {split: opened[split].files for split in DISJOINT if split in opened}
    states = states_of(files)
    pools = {split: splits[split] for split in DISJOINT if split in splits}
    scenes = {split: pool for split, pool in pools.items() if isinstance(pool, Scenes)}
    detailed = {s: pool for s, pool in pools.items() if isinstance(pool, Scenes | Segmented)}
    notes = [note for pool in detailed.values() for note in pool.notes]
    if detailed and small == "excerpt":
        num_classes, class_problems = _declared_classes(detailed, sizes.classes)
        notes += _classes_without_objects(detailed)
    else:
        num_classes, class_problems = count_classes(key, pools, sizes.classes)
    broken = dict(_broken_files(key, pools.values(), decode=decode))
    faults = [fault for pool in scenes.values() for fault in pool.faults]
    problems += class_problems + _broken_lines(data, broken) + faults
    classes = (num_classes, sizes.classes)
    return Report(
        key,
        True,
        small,
        counts,
        classes,
        unreadable=tuple(broken),
        problems=tuple(problems),
        faults=tuple(faults),
        notes=tuple(notes),
        fingerprints=fingerprints,
        files=files,
        states=states,
        began_s=began_s,
    )


def require(key: str, data: Path, *, tolerated: int) -> Report:
    """Return the report of a set that is fit for a run; DataError names what is wrong otherwise.

    A fit set has all classes. At most `tolerated` images are missing, too many or unreadable, or
    annotations broken, in total.
    """
    report = check(key, data, decode=False)
    info = dataset_info(key)
    if not report.found:
        raise DataError(f"{info.title}: {report.problems[0]}. {info.how_to_get}")
    if report.num_bad <= tolerated and report.classes[0] == report.classes[1]:
        return report
    found_classes, expected_classes = report.classes
    more = len(report.problems) - NUM_NAMED
    raise DataError(
        f"{info.title}: {report.num_bad - len(report.faults)} images are missing, too many or "
        f"unusable{_broken_annotations_text(report)}, {tolerated} are tolerated; "
        f"{found_classes} classes found, "
        f"{expected_classes} expected:\n  "
        + "\n  ".join(report.problems[:NUM_NAMED])
        + (f"\n  and {more} more" if more > 0 else "")
        + f"\nSee all: python -m transfer check-data --data {data}. {info.how_to_get}"
    )


def _broken_annotations_text(report: Report) -> str:
    return f" and {len(report.faults)} annotations broken" if report.faults else ""


def render(reports: Iterable[Report]) -> str:
    """Return a table with one row per set, then every problem and how to get the set."""
    return "\n".join(_table_and_problems(list(reports)))


def render_found(reports: Iterable[Report]) -> str:
    """Return the same for the sets that were found, and one line that names the others."""
    reports = list(reports)
    found = [report for report in reports if report.found]
    absent = [report for report in reports if not report.found]
    lines = _table_and_problems(found) if found else []
    if absent:
        keys = [report.key for report in absent]
        gettable = [key for key in keys if dataset_info(key).sources]
        lines += [""] * bool(lines) + [f"not there: {', '.join(keys)}"]
        lines += [f"to get them: python -m transfer get-data {' '.join(gettable)}"] * bool(gettable)
        lines.append(f"how to get one by hand: python -m transfer check-data --sets {keys[0]}")
    return "\n".join(lines)


def _table_and_problems(reports: list[Report]) -> list[str]:
    header = ["data", "found", "classes", *SPLITS, "unreadable", "state"]
    rows = [header, *(_row(report) for report in reports)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    table = [
        "  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)).rstrip() for r in rows
    ]
    for report in reports:
        if not report.ok:
            info = dataset_info(report.key)
            table += ["", f"{report.key} ({info.title})", *(f"  {p}" for p in report.problems)]
            table.append(f"  how to get it: {info.how_to_get}")
            if info.sources:
                table.append(f"  by command: python -m transfer get-data {report.key}")
        if report.notes:
            table += ["", f"{report.key}, remarks", *(f"  {note}" for note in report.notes)]
    return table


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
    """Return "1,020" for an expected number, else "1,019 of 1,020"."""
    found, expected = pair
    return f"{found:,}" if found == expected else f"{found:,} of {expected:,}"


def open_splits(
    key: str, data: Path, names: Sequence[str]
) -> tuple[dict[str, AnySplit], list[str]]:
    """Return the splits that can be opened, and a line for each problem with the others."""
    splits: dict[str, AnySplit] = {}
    problems: list[str] = []
    for name in names:
        try:
            splits[name] = open_any(key, data, name)
        except DataError as error:
            advice = dataset_info(key).how_to_get
            problems.append(str(error).replace(f" {advice}", ""))
    return splits, problems


def _count_problems(counts: Mapping[str, tuple[int, int]]) -> list[str]:
    return [
        f"{split}: {found:,} images found, {expected:,} expected"
        for split, (found, expected) in counts.items()
        if found != expected
    ]


def count_classes(key: str, pools: Mapping[str, AnySplit], expected: int) -> tuple[int, list[str]]:
    """Return the number of classes with images in every split, and a problem for each other one."""
    problems = []
    present: list[set[str]] = []
    known: set[str] = set(_class_list(key, expected))
    for images in pools.values():
        known.update(images.class_names)
    for split, images in pools.items():
        names = _present_classes(images)
        present.append(names)
        problems += [f"{split}: class {name} has no image" for name in sorted(known - names)]
    num_found = len(set.intersection(*present)) if present else 0
    if num_found != expected:
        problems.append(f"{num_found} complete classes found, {expected} expected")
    return num_found, problems


def _declared_classes(
    scenes: Mapping[str, Scenes | Segmented], expected: int
) -> tuple[int, list[str]]:
    """Return the number of classes that every annotation file names.

    A run can do without the objects of some classes, which a small excerpt lacks.
    """
    num_found = len(set.intersection(*(set(pool.class_names) for pool in scenes.values())))
    if num_found == expected:
        return num_found, []
    return num_found, [f"{num_found} classes named in all files, {expected} expected"]


def _classes_without_objects(scenes: Mapping[str, Scenes | Segmented]) -> list[str]:
    absent = {
        split: [name for name in pool.class_names if name not in _present_classes(pool)]
        for split, pool in scenes.items()
    }
    return [f"{split}: no object of {', '.join(names)}" for split, names in absent.items() if names]


def _class_list(key: str, expected: int) -> list[str]:
    """Return names that are known without the files, so that a missing class folder is named."""
    names = dataset_info(key).known_classes()
    return list(names) if len(names) == expected else []


def _present_classes(images: AnySplit) -> set[str]:
    if isinstance(images, Scenes):
        return {images.class_names[i] for i in np.flatnonzero(images.objects_per_class())}
    if isinstance(images, Segmented):
        return {images.class_names[i] for i in np.flatnonzero(images.mask_check[1])}
    labels = images.label_array
    columns = np.flatnonzero((labels == 1).any(axis=0)) if labels.ndim == 2 else np.unique(labels)
    return {images.class_names[int(i)] for i in columns}


def _broken_files(
    key: str, pools: Iterable[AnySplit], *, decode: bool
) -> Iterator[tuple[str, str]]:
    """Yield name and fault of each file that is missing, cannot be decoded or has another size.

    An image with a broken mask is among them.
    """
    pools = list(pools)
    for pool in pools:
        if isinstance(pool, Segmented):
            yield from pool.faults()
    sources = [(pool, pool.source) for pool in pools if isinstance(pool.source, ImageFiles)]
    if not sources:
        return
    with (
        progress("check", key, sum(len(source) for _, source in sources)) as shown,
        ThreadPoolExecutor(max_workers=min(16, 2 * (os.cpu_count() or 1))) as threads,
    ):
        for images, source in sources:
            for start in range(0, len(source), BLOCK):
                stop.exit_if_requested()
                block = range(start, min(start + BLOCK, len(source)))
                names = [source.name(i) for i in block]
                files = [source.folder / name for name in names]
                sizes = [_annotated_size(images, i) for i in block]
                faults = threads.map(partial(_fault, decode=decode), files, sizes)
                yield from ((n, why) for n, why in zip(names, faults, strict=True) if why)
                shown.add(len(block))


def _annotated_size(images: AnySplit, i: int) -> tuple[int, int] | None:
    if not isinstance(images, Scenes):
        return None
    width, height = images.sizes[i].tolist()
    return width, height


def _fault(file: Path, size: tuple[int, int] | None, *, decode: bool) -> str:
    """Return why a file is no image, or none of the annotated size; empty if it is."""
    try:
        if _is_truncated(file) or decode:
            decode_file(file)
        found = None if size is None else upright_size(file)
    except FileNotFoundError:
        return "missing"
    except (DataError, OSError) as error:
        return str(error.__cause__ or error)
    return "" if found == size else f"{found} px, annotated as {size}"


def _is_truncated(file: Path) -> bool:
    """Return whether the first and last bytes are not those of a whole JPEG or PNG."""
    with file.open("rb") as content:
        start = content.read(8)
        size = content.seek(0, os.SEEK_END)
        content.seek(max(0, size - 16))
        end = content.read()
    return not any(start.startswith(first) and end.endswith(last) for first, last in ENDS.items())


def _broken_lines(data: Path, broken: Mapping[str, str]) -> list[str]:
    """Return a line per broken file, but one per folder where the whole folder is gone."""
    folders = Counter(Path(name).parent for name, why in broken.items() if why == "missing")
    gone = {folder: n for folder, n in folders.items() if not (data / folder).is_dir()}
    lines = [f"folder {folder.as_posix()} is missing, {n:,} images" for folder, n in gone.items()]
    return lines + [f"{n}: {why}" for n, why in broken.items() if Path(n).parent not in gone]
