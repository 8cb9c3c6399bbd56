"""Processor time to write the page of many checkpoints, and to open it in Chromium.

The numbers are drawn; a benchmark of the page needs no evaluation.
"""

import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.pages.published import num_test_images
from benchmarks.pages.records import UNTRAINED
from benchmarks.speed.harness import compare, tell_numbers
from transfer.outcomes import per_image
from transfer.record import RECORDS, protocol_hash, read_record, record_path, write_json_record
from transfer.tasks import TASKS, reading_of

NUM_TASKS = 50
CHROMIUM = ("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    rounds: int = 1
    """Number of times that each page is written and opened."""
    checkpoints: tuple[int, ...] = (20, 100)
    """Numbers of checkpoints on a page, each on 50 tasks."""


def run(settings: Settings) -> None:
    """Compare the pages; opening them needs Chromium."""
    with tempfile.TemporaryDirectory() as folder:
        ways = {}
        for number in settings.checkpoints:
            results = Path(folder) / str(number)
            write_records(results, number)
            page = _page(results)
            name = f"{number} checkpoints x {NUM_TASKS} tasks"
            ways[f"{name}: write"] = partial(_write, results)
            if shutil.which(CHROMIUM[0]):
                ways[f"{name}: open"] = partial(_open, page)
        sizes = compare("the page", ways, settings.rounds)
    tell_numbers({f"MB, {name}": size for name, size in sizes.items()})


def _page(results: Path) -> Path:
    from benchmarks.report import write_report  # the longest way through the suite's files

    return write_report(results)


def _write(results: Path) -> float:
    return _page(results).stat().st_size / 1e6


def _open(page: Path) -> float:
    """Open a page until it has settled; return its size in MB."""
    subprocess.run([*CHROMIUM, page.absolute().as_uri()], capture_output=True, check=True)
    return page.stat().st_size / 1e6


def write_records(results: Path, number: int) -> None:
    """Write a record of each of so many checkpoints on each task, with drawn right answers."""
    ours = Path(__file__).parents[2] / "results" / RECORDS
    # all are variants of one of the suite's own
    rng, template = np.random.default_rng(0), read_record(min(ours.glob("*/cifar10_knn.*.json")))
    for key in list(TASKS)[:NUM_TASKS]:
        task, (name, _) = TASKS[key], reading_of(key)
        labels, hashed = np.arange(num_test_images(name) or 1000) % 10, protocol_hash(name, task)
        for i in range(number):
            right = rng.random(len(labels)) < 0.3 + 0.4 * i / number
            protocol = {"name": task.protocol, "hash": hashed, "paper_hash": hashed, "fields": {}}
            made_by = {} if i else {"method": UNTRAINED}
            names = {"name": f"checkpoint-{i}", "sha256": f"{i:064x}", "made_by": made_by}
            record = replace(
                template,
                backbone=template.backbone | names,
                task=name,
                protocol=protocol,
                engine=task.engine,
                metrics={task.primary_metric: 100 * float(right.mean())},
                details=per_image(right, labels),
                data={"set": {"fingerprint": "f", "small": "", "counts": {}, "tolerated": 0}},
                departures=[],
                primary_metric=task.primary_metric,
                heading=task.heading,
            )
            path = record_path(
                results / RECORDS, f"checkpoint-{i}", name, task.protocol, "paper", 0
            )
            write_json_record(path, record)
