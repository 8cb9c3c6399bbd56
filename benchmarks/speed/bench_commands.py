"""Processor time and memory of command lines that compute nothing, each in a process of its own.

    python -m benchmarks.speed.bench_commands [--ckpt jcl.pth --data datasets]

With a checkpoint, a plan is measured, too, after a first one has inspected the file. The last line
is the import of torch alone, for comparison.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.speed.command import run_benchmark

RUN_ALL = str(Path(__file__).parents[1] / "run_all.py")
LIGHT_COMMANDS = (
    (RUN_ALL, "--help"),
    (RUN_ALL, "--status"),
    ("-m", "benchmarks.tables", "--help"),
    ("-m", "benchmarks.report", "--help"),
    ("-m", "benchmarks.status", "--help"),
    ("-m", "benchmarks.figures", "--list"),
    ("-m", "benchmarks.gpu_check", "--help"),
    ("-m", "transfer", "--list"),
    ("-m", "transfer", "cifar10_knn", "--help"),
    ("-m", "transfer", "inspect", "--help"),
    ("-m", "transfer", "get-data", "--help"),
    ("-m", "transfer", "get-data", "all", "--plan"),
    ("-m", "pretrain", "--help"),
    ("-m", "pretrain", "--list"),
    ("-m", "slurm", "--help"),
)
"""Arguments of Python; all of these need no torch."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the measurement."""

    rounds: int = 3
    """Measurements of each command; the smallest is printed."""
    ckpt: Path | None = None
    """Checkpoint to plan for."""
    data: Path = Path("datasets")
    """Folder of all data sets, for the plan."""


def measure(arguments: Sequence[str], folder: Path, rounds: int) -> tuple[float, float]:
    """Return processor time in s and peak memory in MB, each the smallest of several processes.

    RuntimeError if the command fails.
    """
    results = []
    for _ in range(rounds):
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{' '.join(arguments)} ended with status {process.returncode}")
        results.append((usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000))
    times, memories = zip(*results, strict=True)
    return min(times), min(memories)


def run(settings: Settings) -> None:
    """Measure each command and print a line for it."""
    commands: list[Sequence[str]] = list(LIGHT_COMMANDS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if settings.ckpt is not None:
            files = ("--ckpt", str(settings.ckpt.resolve()), "--data", str(settings.data.resolve()))
            plan = (RUN_ALL, *files, "--plan")
            measure(plan, folder, 1)
            commands.append(plan)
        for command in [*commands, ("-c", "import torch")]:
            seconds, megabytes = measure(command, folder, settings.rounds)
            words = " ".join(Path(word).name if word == RUN_ALL else word for word in command)
            print(f"{seconds:6.2f} s  {megabytes:6.0f} MB  python {words}", flush=True)


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    return run_benchmark(Settings, words, __doc__, run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
