"""Cost of scheduling: python -m benchmarks.speed.bench_slurm, on a machine that can submit jobs.

Trivial cells run through a job array, and as processes one after another on this machine. The time
per cell is compared, without the cells' own work. --plan needs no cluster: it times the plan of
many checkpoints, all tasks and three seeds.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.planning.plan import protocol_notes, render_plan
from benchmarks.speed.command import run_benchmark
from slurm.cluster import cluster
from slurm.requeue import Command
from slurm.resources import Queue, Resources
from slurm.state import job_states
from slurm.submit import Array, submit
from transfer.backbone import FORMAT, random_backbone
from transfer.datasets.synthetic.generate import generate


@dataclass(frozen=True, kw_only=True)
class Request:
    """Measure the cost of scheduling."""

    cells: int = 200
    """Number of cells in the array."""
    parallel: int = 16
    """Cells that run at a time."""
    work_s: float = 0.0
    """Work of each cell: it sleeps for this time in s."""
    folder: Path = Path("runs")
    """Folder for the jobs' files, on a file system that all nodes share."""
    plan: bool = False
    """Time the plan instead."""
    checkpoints: int = 20
    """Number of checkpoints of the plan."""
    arch: str = "resnet50"
    """Network of the plan's checkpoints."""


def bench_array(request: Request) -> None:
    """Print the cost of a cell in an array and that of a bare process."""
    words = ("sleep", str(request.work_s))
    request.folder.mkdir(parents=True, exist_ok=True)
    bare_s = _one_after_another(words, min(request.cells, 20))
    with tempfile.TemporaryDirectory(dir=request.folder, prefix="bench-") as name:
        array = Array(
            name="bench",
            work=(Command(words),) * request.cells,
            resources=Resources(cpus=1, hours=1),
            parallel=request.parallel,
        )
        start = time.monotonic()
        (jobs,) = submit([array], Queue(), Path(name).absolute(), cluster())
        submitted_s = time.monotonic() - start
        while not _all_ended(jobs):
            time.sleep(0.5)
        taken_s = time.monotonic() - start
    own_s = request.work_s * request.cells / request.parallel
    above_s = (taken_s - own_s) / request.cells
    print(
        f"{request.cells} cells, {request.parallel} at a time: submitted in {submitted_s:.2f} s, "
        f"ended after {taken_s:.1f} s, {own_s:.1f} s of it their own work\n"
        f"{above_s:.3f} s for each cell above its work; a process here {bare_s:.3f} s, "
        f"ratio {above_s / bare_s:.1f}"
    )


def _one_after_another(words: Sequence[str], count: int) -> float:
    """Return the time per process in s beyond its own work: its start and its end."""
    start = time.monotonic()
    for _ in range(count):
        subprocess.run(words, check=True)
    return (time.monotonic() - start) / count - float(words[1])


def _all_ended(jobs: Sequence[str]) -> bool:
    states = job_states(jobs)
    return len(states) == len(jobs) and all(state.stage == "ended" for state in states.values())


def bench_plan(request: Request) -> None:
    """Print the time of a plan that reads and checks all checkpoints, and of a second plan."""
    from benchmarks.planning.options import RunAll
    from benchmarks.run_all import plan

    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        generate(home / "data")
        asked = RunAll(
            ckpt=tuple(_checkpoint(home, request.arch, i) for i in range(request.checkpoints)),
            data=home / "data",
            results=home / "results",
            runs=home / "runs",
            seeds="0,1,2",
            plan=True,
        )
        for what in ("first", "again"):
            start, busy = time.monotonic(), time.process_time()
            rows = plan(asked)
            text = render_plan(rows) + "\n".join(protocol_notes(rows))
            taken_s, busy_s = time.monotonic() - start, time.process_time() - busy
            print(
                f"{what}: {len(rows)} cells of {request.checkpoints} checkpoints, "
                f"{len(text.splitlines())} lines in {taken_s:.2f} s, {busy_s:.2f} s of a processor"
            )


def _checkpoint(home: Path, arch: str, seed: int) -> Path:
    """Write a random backbone to a file; return its path."""
    backbone = random_backbone(arch=arch, stem="imagenet", seed=seed)
    form = backbone.input
    content = {
        "format": FORMAT,
        "arch": backbone.arch,
        "stem": backbone.stem,
        "state_dict": backbone.state_dict,
        "input": {
            "mean": list(form.mean),
            "std": list(form.std),
            "size": form.size_px,
            "channels": "RGB",
        },
        "made_by": {},
    }
    path = home / f"{arch}-{seed}.pth"
    torch.save(content, path)
    return path


def run(request: Request) -> None:
    """Run the benchmark that the request names."""
    if request.plan:
        bench_plan(request)
    else:
        bench_array(request)


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    return run_benchmark(Request, words, __doc__, run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
