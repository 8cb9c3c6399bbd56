"""Cost of scheduling: trivial cells of a job array against processes one after another here.

It needs a machine that can submit jobs. --plan needs none: it compares a first plan of many
checkpoints, all tasks and three seeds, which reads and checks the files, with a second one.
"""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torchvision.models import resnet50

from benchmarks.planning.options import RunAll
from benchmarks.planning.plan import protocol_notes, render_plan
from benchmarks.speed.harness import Comparison
from slurm.cluster import cluster
from slurm.requeue import Command
from slurm.resources import Queue, Resources
from slurm.state import job_states
from slurm.submit import Array, submit
from transfer.datasets.synthetic.generate import generate


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    cells: int = 200
    """Number of cells in the array."""
    parallel: int = 16
    """Cells that run at a time."""
    folder: Path = Path("runs")
    """Folder for the jobs' files, on a file system that all nodes share."""
    plan: bool = False
    """Compare plans instead."""
    checkpoints: int = 20
    """Number of checkpoints of the plan."""
    rounds: int = 1
    """Number of times that each way is timed."""


def comparisons(settings: Settings) -> Iterator[Comparison]:
    """Yield the comparison of a job array, or that of plans."""
    if settings.plan:
        yield from compare_plans(settings)
        return

    def processes() -> None:
        for _ in range(settings.cells):
            subprocess.run(["true"], check=True)

    yield Comparison(
        title=f"{settings.cells} cells, {settings.parallel} of the array at a time",
        ways={"processes here": processes, "job array": lambda: run_array(settings)},
        wall=True,
    )


def run_array(settings: Settings) -> None:
    """Submit the cells as a job array and wait until all have ended."""
    settings.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=settings.folder, prefix="bench-") as name:
        array = Array(
            name="bench",
            work=(Command(("true",)),) * settings.cells,
            resources=Resources(cpus=1, hours=1),
            parallel=settings.parallel,
        )
        (jobs,) = submit([array], Queue(), Path(name).absolute(), cluster())
        while not _all_ended(jobs):
            time.sleep(0.5)


def _all_ended(jobs: list[str]) -> bool:
    states = job_states(jobs)
    return len(states) == len(jobs) and all(state.stage == "ended" for state in states.values())


def compare_plans(settings: Settings) -> Iterator[Comparison]:
    """Yield the comparison of a plan with an empty folder of runs, and with that of a plan."""
    from benchmarks.run_all import plan

    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        generate(home / "data")
        files = tuple(home / f"{number}.pth" for number in range(settings.checkpoints))
        for file in files:
            torch.save(resnet50().state_dict(), file)

        def make_plan(runs: Path) -> int:
            rows = plan(
                RunAll(
                    ckpt=files,
                    data=home / "data",
                    results=home / "results",
                    runs=runs,
                    seeds="0,1,2",
                    plan=True,
                )
            )
            return len((render_plan(rows) + "\n".join(protocol_notes(rows))).splitlines())

        def first() -> int:
            with tempfile.TemporaryDirectory(dir=home) as empty:
                return make_plan(Path(empty))

        yield Comparison(
            title=f"plan of {settings.checkpoints} checkpoints",
            ways={"first": first, "again": lambda: make_plan(home / "runs")},
            agreement=lambda lines: {f"lines, {way}": count for way, count in lines.items()},
        )
