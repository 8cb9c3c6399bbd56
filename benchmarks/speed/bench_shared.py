"""Speed of run_all on the frozen-feature tasks of one checkpoint, against each task by itself.

    python -m benchmarks.speed.bench_shared
    python -m benchmarks.speed.bench_shared --schedule 0.02 --cifar10 DIR --photographs DIR

By itself, a task runs in the way of other suites: it loads the checkpoint, checks its data,
extracts its features and decodes its images, with empty folders and empty caches, and trains one
learning rate per run. run_all's tasks share one cache, the readings of a probe one stream of crops,
all rates one forward pass, and the ImageNet-100 classifier; the time of its plan and its tables is
included. Both ways run the same cells on the same data in one process, in turn; the order changes
every round. Without folders of real images, small generated data are used.

What bounds the ratio: passes that cannot be shared stay. Each data set is decoded and passed once
for features and once for crops (linear transfer twice, on train and on train and val together), and
classifiers, SVMs and votes cost the same in both ways. Where a run has few steps, as in the smoke
schedule, checkpoint, data checks, records and tables weigh most; where it has many, crops do.
Rates that are trained apart round otherwise than together, so that metrics of probes may differ.
"""

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.execution import sequence
from benchmarks.planning.cells import task_keys
from benchmarks.speed.clock import Clock
from benchmarks.speed.command import run_benchmark
from benchmarks.speed.excerpts import link_cifar10, link_photographs
from benchmarks.speed.one_rate_per_run import one_rate_per_run
from transfer.backbone import InputFormat, load_backbone, random_backbone
from transfer.cells.checked_data import check_once, fingerprint
from transfer.cells.execution import evaluate
from transfer.cells.request import Cell, CellSettings
from transfer.datasets.synthetic.generate import generate
from transfer.record import Record
from transfer.tasks import TASKS

Metrics = dict[str, dict[str, float]]
PARTS = ("decode", "forward", "heads", "rest")
"""Parts of the time: images to batches of pixels, the frozen network, what a task computes from
features, and everything else: checkpoint, data checks, cache, records, tables."""
ITSELF = "checkpoint, plan, tables"
START = "import transfer.cells.execution, transfer.frozen.linear_heads, benchmarks.run_all"
"""Imports of a process that runs a task."""
REAL_TASKS = {
    "cifar10": ("cifar10_linear", "cifar10_knn", "cifar10_lowshot_knn", "cifar10_fewshot"),
    "in1k": (
        *(f"in1k_linear@{reading}" for reading in ("jcl", "co2", "lorac", "moco")),
        *("in1k_linear@uniclr", "in1k_linear@uniclr-0.4"),
    ),
}
"""Tasks on excerpts of real images, where none are given. Linear transfer is left out: its steps do
not depend on the size of the set, and by itself it takes eight passes of them."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    arch: str = "resnet18"
    image_px: int = 32
    """Side of the crops. On a CPU the forward passes take most of the time, which grows with the
    square of this side."""
    rounds: int = 2
    """Number of times that each way is timed."""
    tasks: str = ""
    """Task ids, separated by commas; if not given, every task on frozen features, or those on the
    given real images that end soon."""
    schedule: str = "smoke"
    """Training length: smoke, short, or a share of the paper's."""
    cifar10: Path | None = None
    """Folder of {train,test}/CLASS with images of CIFAR-10, of which 12,000 are used."""
    photographs: Path | None = None
    """Folder of WNID/* with photographs of ImageNet, all of which are used."""

    @property
    def real(self) -> dict[str, Path]:
        """Folders of real images by data set."""
        folders = {"cifar10": self.cifar10, "in1k": self.photographs}
        return {key: folder for key, folder in folders.items() if folder is not None}


def frozen_tasks(settings: Settings) -> list[str]:
    """Return the keys of the given tasks, or of the default tasks on a frozen backbone."""
    wanted = task_keys(settings.tasks, "") if settings.tasks else []
    real = [key for name in settings.real for key in REAL_TASKS[name]]
    return (
        wanted
        or real
        or [key for key, task in TASKS.items() if task.by_default and not task.trains_backbone]
    )


def write_data(settings: Settings, data: Path) -> None:
    """Link the real images into the data folder, or generate small data."""
    for key, folder in settings.real.items():
        {"cifar10": link_cifar10, "in1k": link_photographs}[key](folder, data)
    if not settings.real:
        tasks = [TASKS[key] for key in frozen_tasks(settings)]
        tasks += [TASKS[task.needs] for task in tasks if task.needs]
        generate(data, keys=list(dict.fromkeys(key for task in tasks for key in task.datasets())))


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
    """Count the time of each part of the tasks' work; yield the function that evaluates a cell.

    That function counts its time under the cell's key and adds its metrics to `found`.
    """

    def evaluated(cell: Cell) -> Record:
        with clock.during(subject=cell.key):
            record = evaluate(cell)
        found[cell.key] = record.metrics
        return record

    with ExitStack() as patches:
        change: Any = patch.object
        for room, name, function in imported_functions(("load_batches", "load_stacked")):
            patches.enter_context(change(room, name, timed_batches(clock, function)))
        for room, name, function in imported_functions(("forward",)):
            patches.enter_context(change(room, name, clock.timed("forward", function)))
        for kind in {
            type(task): None
            for task in TASKS.values()
            if task.by_default and not task.trains_backbone
        }:
            patches.enter_context(change(kind, "run", clock.timed("heads", kind.run)))
        patches.enter_context(change(sequence, "evaluate_on_gpus", evaluated))
        yield evaluated


def imported_functions(names: Sequence[str]) -> list[tuple[ModuleType, str, Any]]:
    """Return each module of transfer.frozen that knows a function of these names, and the function.

    A module that imports a function by name calls it by its own name.
    """
    rooms = [room for name, room in sys.modules.items() if name.startswith("transfer.frozen.")]
    return [
        (room, name, vars(room)[name]) for room in rooms for name in names if name in vars(room)
    ]


def timed_batches(
    clock: Clock, load: Callable[..., Generator[Any, None, None]]
) -> Callable[..., Generator[Any, None, None]]:
    """Return the loader with the time of its batches, and of its workers, counted as decoding."""

    def timed(*args: Any, **options: Any) -> Generator[Any, None, None]:
        batches = load(*args, **options)
        try:
            while True:
                with clock.during(part="decode"):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch
        finally:
            with clock.during(part="decode"):  # the time of workers is known when they have ended
                batches.close()

    return timed


def forget() -> None:
    """Clear this process's caches of checked data sets."""
    check_once.cache_clear()
    fingerprint.cache_clear()


def by_run_all(
    keys: Sequence[str], checkpoint: Path, data: Path, home: Path, schedule: str = "smoke"
) -> tuple[Clock, Metrics]:
    """Run all tasks by run_all; return the time spent and the metrics.

    RuntimeError if it does not finish every task.
    """
    from benchmarks import run_all
    from benchmarks.planning.options import RunAll

    forget()
    found: Metrics = {}
    request = RunAll(
        ckpt=(checkpoint,),
        data=data,
        results=home / "results",
        runs=home / "runs",
        tasks=",".join(keys),
        schedule=schedule,
    )
    clock = Clock(ITSELF)
    with timed_evaluation(clock, found):
        status = run_all.run(request)
    clock.stop()
    if status or set(found) != set(keys):
        raise RuntimeError(f"run_all has finished {sorted(found)} of {sorted(keys)}")
    return clock, found


def each_by_itself(
    keys: Sequence[str], checkpoint: Path, data: Path, home: Path, schedule: str = "smoke"
) -> tuple[Clock, Metrics]:
    """Run every task with folders of its own and one learning rate per run.

    Returns the time spent and the metrics.
    """
    found: Metrics = {}
    clock = Clock(ITSELF)
    with timed_evaluation(clock, found) as evaluated, one_rate_per_run():
        for key in keys:
            forget()
            own = home / key.replace("/", "-")
            settings = CellSettings(
                data=data, results=own / "results", runs=own / "runs", schedule=schedule
            )
            with clock.during(subject=key):
                backbone = load_backbone(checkpoint)
                evaluated(Cell(key=key, backbone=backbone, seed=0, settings=settings))
    clock.stop()
    return clock, found


WAYS = (each_by_itself, by_run_all)


def start_s() -> float:
    """Return the processor time in s that a process takes to start and import what a task needs."""
    before = os.times()
    subprocess.run([sys.executable, "-c", START], check=True)
    after = os.times()
    return after.children_user + after.children_system - before[2] - before[3]


def report(keys: Sequence[str], clocks: Sequence[tuple[Clock, Clock]]) -> str:
    """Return a line per task with the times of both ways, medians over rounds, and the ratios."""

    def line(name: str, spent: Callable[[Clock, str], float]) -> str:
        numbers = (
            median(spent(pair[way], part) for pair in clocks) for way in (0, 1) for part in PARTS
        )
        return f"{name:<28}" + "".join(f"{number:9.2f}" for number in numbers)

    def of_task(key: str) -> Callable[[Clock, str], float]:
        return lambda clock, part: clock.spent[key, part]

    def of_all(clock: Clock, part: str) -> float:
        return sum(spent for (_, counted), spent in clock.spent.items() if counted == part)

    each, shared = (median(pair[way].total() for pair in clocks) for way in (0, 1))
    ratios = ", ".join(f"{pair[0].total() / pair[1].total():.2f}" for pair in clocks)
    left = ", ".join(
        f"{part} {100 * median(of_all(pair[1], part) for pair in clocks) / shared:.0f} %"
        for part in PARTS
    )
    return "\n".join(
        [
            f"{'':<28}{'each by itself':>36}{'by run_all':>36}",
            f"{'seconds':<28}" + "".join(f"{part:>9}" for part in (*PARTS, *PARTS)),
            *(line(key, of_task(key)) for key in (*keys, ITSELF)),
            line("all", of_all),
            f"each by itself {each:.1f} s, by run_all {shared:.1f} s; ratios {ratios}",
            f"where the time of run_all goes: {left}",
        ]
    )


def differences(apart: Metrics, shared: Metrics) -> str:
    """Return the largest difference of each task's metrics in points, of those that have one."""
    largest = {
        key: max(abs(value - shared[key][name]) for name, value in metrics.items())
        for key, metrics in apart.items()
    }
    told = [f"{key} {points:.2f}" for key, points in largest.items() if points]
    if not told:
        return "metrics equal"
    return (
        f"metrics of {len(apart) - len(told)} tasks equal; points of difference: {', '.join(told)}"
    )


def run(settings: Settings) -> None:
    """Print the time of each task in both ways, the ratio, and what differs in the metrics."""
    keys = frozen_tasks(settings)
    clocks, equality = [], ""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_data(settings, home / "data")
        checkpoint = home / "random.pt"
        write_checkpoint(settings, checkpoint)
        for turn in range(settings.rounds):
            done = {}
            for way in WAYS[:: -1 if turn % 2 else 1]:
                own_home = home / f"{turn}" / way.__name__
                with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                    done[way] = way(keys, checkpoint, home / "data", own_home, settings.schedule)
                spent_s = done[way][0].total()
                name = way.__name__.replace("_", " ")
                print(
                    f"round {turn + 1} of {settings.rounds}, {name}: {spent_s:.1f} s",
                    file=sys.stderr,
                    flush=True,
                )
            (apart, found), (shared, same) = (done[way] for way in WAYS)
            equality = differences(found, same)
            clocks.append((apart, shared))
    where = "wall time with a GPU" if torch.cuda.is_available() else "processor time"
    images = "real images" if settings.real else "generated data"
    print(f"{settings.arch} at {settings.image_px} px, {len(keys)} tasks, {images}, ", end="")
    print(f"schedule {settings.schedule}; medians of {settings.rounds} rounds, {where}")
    print(report(keys, clocks))
    print(equality)
    print(f"not counted: {len(keys)} processes against one, {start_s():.1f} s each to start")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads", file=sys.stderr)


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    return run_benchmark(Settings, words, __doc__, run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
