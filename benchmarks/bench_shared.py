"""All frozen-feature tasks of one checkpoint by run_all, against each task by itself.

    python -m benchmarks.bench_shared

Other suites run a task at a time, and each extracts what it needs: here every task with a cache of
its own, nothing shared. run_all's tasks share one cache, and the ImageNet-100 classifier. Both ways
run the same cells on the same generated data in one process, in turn, from empty folders; processor
time is compared, and the records' metrics are compared too: they have to be equal.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import torch
import tyro

import transfer.features
from transfer.backbone import Backbone, InputFormat, random_backbone
from transfer.cell import Cell, Place, evaluate, on_frozen_features
from transfer.datasets.catalog import DATASETS
from transfer.datasets.generate import generate
from transfer.tasks import TASKS

Metrics = dict[str, dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Of the comparison."""

    arch: str = "resnet18"
    image_px: int = 64
    rounds: int = 1
    """How often each way is timed."""
    tasks: str = ""
    """Separated by commas; every task on frozen features if not given."""


class Clock:
    """Processor time of the whole and of what extraction takes of it."""

    def __init__(self) -> None:
        self.extracting = 0.0
        self.plain = transfer.features.extract

    def extract(self, *arguments: object) -> None:
        """In the place of the extraction."""
        start = time.process_time()
        self.plain(*arguments)  # type: ignore[arg-type]
        self.extracting += time.process_time() - start


def frozen_tasks(names: str) -> list[str]:
    """Keys of the tasks that only look at frozen features or crops of a frozen backbone."""
    wanted = [word.strip() for word in names.split(",") if word.strip()]
    return wanted or [key for key, task in TASKS.items() if on_frozen_features(task)]


def together(keys: Sequence[str], backbone: Backbone, place: Place) -> tuple[float, Metrics]:
    """As run_all does it."""
    start = time.process_time()
    cells = [Cell(key=key, backbone=backbone, seed=0, place=place) for key in keys]
    found = {cell.key: evaluate(cell).metrics for cell in cells}
    return time.process_time() - start, found


def alone(
    keys: Sequence[str], backbone: Backbone, place: Place
) -> tuple[dict[str, float], Metrics]:
    """Every task with folders of its own; seconds per task."""
    seconds: dict[str, float] = {}
    found: Metrics = {}
    for key in keys:
        own = place.runs / "alone" / key.replace("/", "-")
        apart = replace(place, runs=own / "runs", results=own / "results")
        start = time.process_time()
        found[key] = evaluate(Cell(key=key, backbone=backbone, seed=0, place=apart)).metrics
        seconds[key] = time.process_time() - start
    return seconds, found


def main(settings: Settings) -> None:
    """Print the ratio, and where each way's time goes."""
    form = InputFormat(size_px=settings.image_px)
    backbone = random_backbone(arch=settings.arch, stem="imagenet", seed=0, input=form)
    keys = frozen_tasks(settings.tasks)
    shared, separate, shares, ratios = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        generate(home / "data", keys=[key for key in DATASETS if not key.startswith("coco")])
        place = Place(data=home / "data", results=home, runs=home, schedule="smoke")
        for turn in range(settings.rounds):
            clock = Clock()
            transfer.features.extract = clock.extract  # type: ignore[assignment]
            at = replace(place, results=home / f"{turn}/results", runs=home / f"{turn}/runs")
            each, found = alone(keys, backbone, at)
            apart = clock.extracting
            clock.extracting = 0.0
            seconds, same = together(keys, backbone, at)
            transfer.features.extract = clock.plain
            if same != found:
                raise RuntimeError(f"the two ways disagree: {same} and {found}")
            shared.append(seconds)
            separate.append(sum(each.values()))
            shares.append((apart, clock.extracting))
            ratios.append(separate[-1] / seconds)
    print(f"{settings.arch} at {settings.image_px} px, {len(keys)} tasks, generated data, smoke")
    print(
        f"each by itself {median(separate):.1f} s, by run_all {median(shared):.1f} s of processor"
    )
    print(f"ratio {median(ratios):.2f}; metrics equal")
    extra, kept = (median(column) for column in zip(*shares, strict=True))
    print(f"of these, extraction {extra:.1f} s by itself, {kept:.1f} s by run_all")
    for key, seconds in sorted(each.items(), key=lambda item: -item[1])[:8]:
        print(f"  {key:<28}{seconds:6.1f} s by itself")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads", file=sys.stderr)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
