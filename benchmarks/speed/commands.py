"""Processor time and memory of commands that compute nothing, against the import of torch.

Each runs in a process of its own.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.speed.harness import compare, tell_numbers

RUN_ALL = str(Path(__file__).parents[1] / "run_all.py")
LIGHT_COMMANDS = (
    (RUN_ALL, "--help"),
    (RUN_ALL, "--status"),
    ("-m", "benchmarks.tables", "--help"),
    ("-m", "benchmarks.report", "--help"),
    ("-m", "benchmarks.status", "--help"),
    ("-m", "benchmarks.figures", "--list"),
    ("-m", "benchmarks.gpu_check", "--help"),
    ("-m", "benchmarks.speed", "--help"),
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
    """Settings of the comparison."""

    rounds: int = 3
    """Number of times that each command is timed."""


def run(settings: Settings) -> None:
    """Compare all commands."""
    commands = {
        " ".join(["python", *words]).replace(RUN_ALL, "run_all.py"): words
        for words in (("-c", "import torch"), *LIGHT_COMMANDS)
    }
    with tempfile.TemporaryDirectory() as folder:
        ways = {name: partial(measure, words, folder) for name, words in commands.items()}
        memory = compare("command lines", ways, settings.rounds)
    tell_numbers({f"MB, {name}": value for name, value in memory.items()})


def measure(arguments: Sequence[str], folder: str) -> float:
    """Run Python with these arguments; return the peak memory of its process in MB.

    RuntimeError if the command fails.
    """
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
    return usage.ru_maxrss / 1000
