"""Start of a detector's processes: COCO's annotations parsed by each, against mapped by all.

    python -m benchmarks.speed.bench_annotations

A file in COCO's layout is drawn, by default of the size of instances_train2017.json. The processes
open its training split at the same moment, as those of a detector do: each parses it; then once
with an empty cache, where one parses and the others wait; then with the arrays in the cache. Memory
is the peak of all processes together, pages that they share counted once. Parsing takes about 3 GB
in each process.
"""

import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import ForkProcess
from pathlib import Path

import numpy as np

from benchmarks.speed.command import run_benchmark
from transfer.datasets.catalog import map_annotations, open_scenes
from transfer.datasets.scenes import usable_for_training
from transfer.running.folders import Folders

OBJECTS_PER_IMAGE = 860_001 / 118_287
COORDINATES = (14, 72)
"""Least and most coordinates of an outline; with these, a file has the size of COCO's."""
LOOK_EVERY_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    images: int = 118_287
    parallel: int = 8
    """Processes that start together."""


def write_annotations(file: Path, num_images: int) -> None:
    """Write an annotation file in COCO's layout, of num_images images."""
    file.parent.mkdir(parents=True)
    with file.open("w") as opened:
        opened.write('{"images": [')
        opened.writelines(_separated(_images(num_images)))
        opened.write('], "annotations": [')
        opened.writelines(_separated(_annotations(num_images)))
        categories = [{"id": i, "name": f"class {i}", "supercategory": "x"} for i in range(1, 81)]
        opened.write(f'], "categories": {json.dumps(categories)}}}')


def _separated(entries: Iterator[str]) -> Iterator[str]:
    for number, entry in enumerate(entries):
        yield f", {entry}" if number else entry


def _images(num_images: int) -> Iterator[str]:
    for number in range(1, num_images + 1):
        name = f"{5 * number:012d}.jpg"
        yield json.dumps(
            {
                "license": 3,
                "file_name": name,
                "coco_url": f"http://images.cocodataset.org/train2017/{name}",
                "height": 480,
                "width": 640,
                "date_captured": "2013-11-14 11:18:45",
                "flickr_url": f"http://farm9.staticflickr.com/8186/{number:010d}_z.jpg",
                "id": 5 * number,
            }
        )


def _annotations(num_images: int) -> Iterator[str]:
    draw = np.random.default_rng(0)
    pool = [f"{value:.2f}" for value in draw.uniform(0, 480, 100_000)]
    count = round(num_images * OBJECTS_PER_IMAGE)
    lengths = 2 * draw.integers(COORDINATES[0] // 2, COORDINATES[1] // 2, count)
    starts = draw.integers(0, len(pool) - COORDINATES[1], count)
    for number in range(count):
        start = int(starts[number])
        outline = ", ".join(pool[start : start + int(lengths[number])])
        left, top, width, height = pool[start : start + 4]
        yield (
            f'{{"segmentation": [[{outline}]], "area": {width}, "iscrowd": 0, "image_id": '
            f'{5 * (1 + number % num_images)}, "bbox": [{left}, {top}, {width}, {height}], '
            f'"category_id": {1 + number % 80}, "id": {number + 1}}}'
        )


@dataclass(frozen=True)
class Start:
    """The start of all processes."""

    seconds: float
    """Until the last one has opened the split."""
    peak_gb: float
    """Memory of all together."""


def open_training_split(data: Path, cache: Path | None) -> None:
    """Open the split that a detector trains on, from arrays in a cache if one is given."""
    if cache is not None:
        map_annotations(["coco17"], Folders(data, cache, cache))
    usable_for_training(open_scenes("coco17", data, "trainval"), "masks")


def measure(opening: Callable[[], None], num_processes: int) -> Start:
    """Return time and peak memory of processes that open a split together."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=opening) for _ in range(num_processes)]
    start, peak = time.monotonic(), 0.0
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        peak = max(peak, sum(map(_memory_gb, processes)))
        time.sleep(LOOK_EVERY_S)
    for process in processes:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a process ended with status {process.exitcode}; is memory short?")
    return Start(time.monotonic() - start, peak)


def _memory_gb(process: ForkProcess) -> float:
    """Return the memory of a process, shared pages divided among those that share them."""
    with suppress(OSError):  # it has ended meanwhile
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024 / 1e9
    return 0.0


def run(settings: Settings) -> None:
    """Print seconds and memory of the three ways, and their ratios."""
    with tempfile.TemporaryDirectory(prefix="annotations-") as folder:
        data, cache = Path(folder) / "data", Path(folder) / "cache"
        file = data / "coco" / "annotations" / "instances_train2017.json"
        write_annotations(file, settings.images)
        size = file.stat().st_size
        print(f"{size / 1e6:,.0f} MB of annotations, {settings.parallel} processes", flush=True)
        parsed = measure(partial(open_training_split, data, None), settings.parallel)
        _show("parsed by each", parsed, parsed)
        for name in ("parsed by one, mapped by all", "mapped by all"):
            mapped = measure(partial(open_training_split, data, cache), settings.parallel)
            _show(name, mapped, parsed)
        stored = sum(path.stat().st_size for path in cache.rglob("*.scenes"))
        print(f"{stored / 1e6:,.0f} MB of arrays in the cache")


def _show(name: str, start: Start, before: Start) -> None:
    print(
        f"{name:<30}{start.seconds:8.1f} s{start.peak_gb:8.2f} GB"
        f"   {before.seconds / start.seconds:6.2f} times as fast,"
        f" {before.peak_gb / start.peak_gb:6.2f} times less memory",
        flush=True,
    )


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    return run_benchmark(Settings, words, __doc__, run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
