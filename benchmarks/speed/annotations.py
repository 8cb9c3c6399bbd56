"""Start of a detector's processes: COCO's annotations parsed by each, against mapped by all.

A file in COCO's layout is drawn, by default of the size of instances_train2017.json. The processes
open its training split at the same moment, as those of a detector do. Memory is the peak of all
processes together, pages that they share counted once. Parsing takes about 3 GB in each process.
"""

import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.speed.harness import Comparison
from transfer.datasets.catalog import map_annotations, open_scenes
from transfer.datasets.scenes import usable_for_training
from transfer.running.folders import Folders

OBJECTS_PER_IMAGE = 860_001 / 118_287  # of instances_train2017.json
COORDINATES = 44
"""Coordinates of an outline; with these, a file has the size of COCO's."""
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    images: int = 118_287
    parallel: int = 8
    """Processes that start together."""
    rounds: int = 1
    """Number of times that each way is timed."""


def comparisons(settings: Settings) -> Iterator[Comparison]:
    """Yield the comparison of the start of all processes."""
    with tempfile.TemporaryDirectory() as name:
        data, cache = Path(name, "data"), Path(name, "cache")
        # in a process of its own, whose memory the others do not inherit
        start_together(1, write_annotations, data, settings.images)
        start_together(1, open_training_split, data, cache)

        def parse_once() -> float:
            with tempfile.TemporaryDirectory(dir=name) as empty:
                return start_together(settings.parallel, open_training_split, data, Path(empty))

        yield Comparison(
            title=f"annotations of {settings.images} images, {settings.parallel} processes",
            ways={
                "parsed by each": lambda: start_together(
                    settings.parallel, open_training_split, data, None
                ),
                "parsed by one, mapped by all": parse_once,
                "mapped by all": lambda: start_together(
                    settings.parallel, open_training_split, data, cache
                ),
            },
            agreement=lambda peaks: {f"GB, {way}": peak for way, peak in peaks.items()},
            wall=True,
        )


def write_annotations(data: Path, num_images: int) -> None:
    """Write an annotation file in COCO's layout below the folder of all data sets."""
    draw = np.random.default_rng(0)
    pool = draw.uniform(0, 480, 100_000).round(2).tolist()
    count = round(num_images * OBJECTS_PER_IMAGE)
    starts = draw.integers(0, len(pool) - COORDINATES, count).tolist()
    images = [
        {
            "file_name": f"{5 * number:012d}.jpg",
            "height": 480,
            "width": 640,
            "id": 5 * number,
        }
        for number in range(1, num_images + 1)
    ]
    annotations = [
        {
            "segmentation": [pool[start : start + COORDINATES]],
            "area": pool[start],
            "iscrowd": 0,
            "image_id": 5 * (1 + number % num_images),
            "bbox": pool[start : start + 4],
            "category_id": 1 + number % 80,
            "id": number + 1,
        }
        for number, start in enumerate(starts)
    ]
    categories = [{"id": i, "name": f"class {i}", "supercategory": "x"} for i in range(1, 81)]
    file = data / "coco" / "annotations" / "instances_train2017.json"
    file.parent.mkdir(parents=True)
    content = {"images": images, "annotations": annotations, "categories": categories}
    file.write_text(json.dumps(content))


def open_training_split(data: Path, cache: Path | None) -> None:
    """Open the split that a detector trains on, from arrays in a cache if one is given."""
    if cache is not None:
        map_annotations(["coco17"], Folders(data, cache, cache))
    usable_for_training(open_scenes("coco17", data, "trainval"), "masks")


def start_together(count: int, function: Callable[..., None], *arguments: object) -> float:
    """Call a function in several processes at once; return the peak memory of all in GB."""
    processes = [FORK.Process(target=function, args=arguments) for _ in range(count)]
    for process in processes:
        process.start()
    peak = 0.0
    while any(process.is_alive() for process in processes):
        peak = max(peak, sum(_memory_gb(process.pid) for process in processes))
        time.sleep(0.1)
    if any(process.exitcode for process in processes):
        raise RuntimeError("a process has failed; is memory short?")
    return peak


def _memory_gb(process: int | None) -> float:
    """Return the memory of a process, shared pages divided among those that share them."""
    with suppress(OSError):  # it has ended meanwhile
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):  # Rss would count a mapped page in every process
                return int(line.split()[1]) * 1024 / 1e9
    return 0.0
