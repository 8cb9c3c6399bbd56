"""Announcing an excerpt: what a set holds becomes what it is compared with, in small-data.json."""

import json
from collections.abc import Mapping
from pathlib import Path

from pretrain.running.atomic_files import write_whole
from transfer.datasets.catalog import dataset_info
from transfer.datasets.check import DISJOINT, count_classes, open_splits
from transfer.datasets.expected import SMALL_DATA, DataError, Sizes, small_sizes
from transfer.datasets.scenes import Scenes
from transfer.datasets.segmented import Segmented


def announce(key: str, data: Path) -> Sizes:
    """Write what a set holds to `small-data.json`, as the sizes of an excerpt; return them.

    Splits that are drawn from trainval follow it: a tenth of each class is val. DataError if the
    set is absent or cannot be read.
    """
    info = dataset_info(key)
    if not info.is_there(data):
        raise DataError(f"{info.missing_path(data)} is not there. {info.how_to_get}")
    splits, problems = open_splits(key, data, [s for s in DISJOINT if s in info.counts])
    if not splits:
        raise DataError(f"{info.title}: {'; '.join(problems)}")
    detailed = {s: pool for s, pool in splits.items() if isinstance(pool, Scenes | Segmented)}
    if detailed:
        classes = info.num_classes
    else:
        classes, _ = count_classes(key, splits, info.num_classes)
    counts = {split: len(images) for split, images in splits.items()}
    if "train" in info.counts and "trainval" in counts and not detailed:
        val = max(1, counts["trainval"] // classes // 10) * classes
        counts |= {"train": counts["trainval"] - val, "val": val}
    _write_sizes(data, key, classes, counts)
    parts, _ = open_splits(key, data, [s for s in ("train", "val") if s in counts])
    counts |= {split: len(images) for split, images in parts.items()}  # as published lists say
    _write_sizes(data, key, classes, counts)
    return Sizes(classes=classes, counts=counts)


def _write_sizes(data: Path, key: str, classes: int, counts: Mapping[str, int]) -> None:
    file = data / SMALL_DATA
    known = json.loads(file.read_text()) if small_sizes(data) else {}
    known[key] = {"classes": classes, "counts": dict(counts)}
    write_whole(file, (json.dumps(known, indent=1) + "\n").encode(), "--data")
