"""Speed of run_all on all frozen-feature tasks of one checkpoint, against each task by itself.

    python -m benchmarks.speed.bench_shared

Other suites run one task at a time. Each task loads the checkpoint, checks its data and extracts
its features; here, it does so with empty folders and empty caches. run_all's tasks share one cache
and the ImageNet-100 classifier; the time of its plan and its tables is included. Both ways run the
same cells on the same generated data in one process, in turn; the order changes every round. The
metrics in the records must be equal.
"""

import io
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

import transfer.frozen.extraction
from benchmarks import run_all
from benchmarks.execution import sequence
from benchmarks.speed.clock import Clock
from benchmarks.speed.command import run_benchmark
from transfer.backbone import InputFormat, load_backbone, random_backbone
from transfer.cells.checked_data import check_once, fingerprint
from transfer.cells.execution import evaluate
from transfer.cells.request import Cell, CellSettings
from transfer.datasets.catalog import DATASETS
from transfer.datasets.synthetic.generate import generate
from transfer.record import Record
from transfer.tasks import TASKS

Metrics = dict[str, dict[str, float]]
PARTS = ("extraction", "training", "rest")
ITSELF = "checkpoint, plan, tables"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    arch: str = "resnet18"
    image_px: int = 64
    rounds: int = 2
    """Number of times that each way is timed."""
    tasks: str = ""
    """Task ids, separated by commas; every task on frozen features if not given."""


def frozen_tasks(names: str) -> list[str]:
    """Return the keys of the given tasks, or of all default tasks on a frozen backbone."""
    wanted = [word.strip() for word in names.split(",") if word.strip()]
    return wanted or [
        key for key, task in TASKS.items() if task.by_default and not task.trains_backbone
    ]


def write_checkpoint(settings: Settings, path: Path) -> None:
    """Write a random network to a backbone file."""
    form = InputFormat(size_px=settings.image_px)
    backbone = random_backbone(arch=settings.arch, stem="imagenet", seed=0, input=form)
    mean, std = list(form.mean), list(form.std)
    content = {
        "format": "ssl-backbone/1",
        "arch": backbone.arch,
        "stem": backbone.stem,
        "state_dict": backbone.state_dict,
        "input": {"mean": mean, "std": std, "size": form.size_px, "channels": "RGB"},
        "made_by": {},
    }
    torch.save(content, path)


@contextmanager
def timed_evaluation(clock: Clock, found: Metrics) -> Iterator[Callable[[Cell], Record]]:
    """Count the time of extraction and of the tasks' own work; yield the function that evaluates.

    That function counts its time under the cell's key and adds its metrics to `found`. Training
    includes the forward passes of the random crops that a probe is trained on.
    """

    def evaluated(cell: Cell) -> Record:
        with clock.during(subject=cell.key):
            record = evaluate(cell)
        found[cell.key] = record.metrics
        return record

    with ExitStack() as patches:
        change: Any = patch.object
        extract = clock.timed("extraction", transfer.frozen.extraction.extract)
        patches.enter_context(change(transfer.frozen.extraction, "extract", extract))
        for kind in {
            type(task): None
            for task in TASKS.values()
            if task.by_default and not task.trains_backbone
        }:
            patches.enter_context(change(kind, "run", clock.timed("training", kind.run)))
        patches.enter_context(change(sequence, "evaluate_on_gpus", evaluated))
        yield evaluated


def forget() -> None:
    """Clear this process's caches of checked data sets."""
    check_once.cache_clear()
    fingerprint.cache_clear()


def by_run_all(
    keys: Sequence[str], checkpoint: Path, data: Path, home: Path
) -> tuple[Clock, Metrics]:
    """Run all tasks by run_all; return the time spent and the metrics.

    RuntimeError if it does not finish every task.
    """
    forget()
    found: Metrics = {}
    request = run_all.RunAll(
        ckpt=(checkpoint,),
        data=data,
        results=home / "results",
        runs=home / "runs",
        tasks=",".join(keys),
        schedule="smoke",
    )
    clock = Clock(ITSELF)
    with timed_evaluation(clock, found):
        status = run_all.run(request)
    clock.stop()
    if status or set(found) != set(keys):
        raise RuntimeError(f"run_all has finished {sorted(found)} of {sorted(keys)}")
    return clock, found


def each_by_itself(
    keys: Sequence[str], checkpoint: Path, data: Path, home: Path
) -> tuple[Clock, Metrics]:
    """Run every task with folders of its own; return the time spent and the metrics."""
    found: Metrics = {}
    clock = Clock(ITSELF)
    with timed_evaluation(clock, found) as evaluated:
        for key in keys:
            forget()
            own = home / key.replace("/", "-")
            settings = CellSettings(
                data=data, results=own / "results", runs=own / "runs", schedule="smoke"
            )
            with clock.during(subject=key):
                backbone = load_backbone(checkpoint)
                evaluated(Cell(key=key, backbone=backbone, seed=0, settings=settings))
    clock.stop()
    return clock, found


WAYS = (each_by_itself, by_run_all)


def report(keys: Sequence[str], clocks: Sequence[tuple[Clock, Clock]]) -> str:
    """Return a line per task with the times of both ways, medians over rounds, and the ratios."""

    def line(name: str, spent: Callable[[Clock, str], float]) -> str:
        numbers = (
            median(spent(pair[way], part) for pair in clocks) for way in (0, 1) for part in PARTS
        )
        return f"{name:<28}" + "".join(f"{number:12.2f}" for number in numbers)

    def of_task(key: str) -> Callable[[Clock, str], float]:
        return lambda clock, part: clock.spent[key, part]

    def of_all(clock: Clock, part: str) -> float:
        return sum(spent for (_, counted), spent in clock.spent.items() if counted == part)

    each, shared = (median(pair[way].total() for pair in clocks) for way in (0, 1))
    ratios = ", ".join(f"{pair[0].total() / pair[1].total():.2f}" for pair in clocks)
    lines = [
        f"{'':<28}{'each by itself':>36}{'by run_all':>36}",
        f"{'seconds':<28}" + "".join(f"{part:>12}" for part in (*PARTS, *PARTS)),
        *(line(key, of_task(key)) for key in (*keys, ITSELF)),
        line("all", of_all),
        f"each by itself {each:.1f} s, by run_all {shared:.1f} s; ratios {ratios}; metrics equal",
    ]
    return "\n".join(lines)


def run(settings: Settings) -> None:
    """Print the time of each task in both ways, and the ratio.

    RuntimeError if the metrics of both ways differ.
    """
    keys = frozen_tasks(settings.tasks)
    clocks = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        generate(home / "data", keys=[key for key in DATASETS if not key.startswith("coco")])
        checkpoint = home / "random.pt"
        write_checkpoint(settings, checkpoint)
        for turn in range(settings.rounds):
            done = {}
            for way in WAYS[:: -1 if turn % 2 else 1]:
                own_home = home / f"{turn}" / way.__name__
                with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                    done[way] = way(keys, checkpoint, home / "data", own_home)
            (apart, found), (shared, same) = (done[way] for way in WAYS)
            if same != found:
                raise RuntimeError(f"the two ways disagree: {same} and {found}")
            clocks.append((apart, shared))
    where = "wall time with a GPU" if torch.cuda.is_available() else "processor time"
    print(f"{settings.arch} at {settings.image_px} px, {len(keys)} tasks, generated data, smoke")
    print(f"medians of {settings.rounds} rounds, {where}")
    print(report(keys, clocks))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads", file=sys.stderr)


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    return run_benchmark(Settings, words, __doc__, run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
