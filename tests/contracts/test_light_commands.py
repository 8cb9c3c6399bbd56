"""Command lines that compute nothing import no torch; a plan imports no torchvision."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from transfer.encoders.encoder import random_backbone

ROOT = Path(__file__).parents[2]
RUN_ALL = str(ROOT / "benchmarks" / "run_all.py")
RECORD = ("--name", "cifar10-vicreg", "--task", "cifar10_knn")
LIGHT_COMMANDS = (
    (RUN_ALL, "--help"),
    (RUN_ALL, "--status"),
    ("-m", "benchmarks.tables", "--help"),
    ("-m", "benchmarks.report", "--help"),
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
    ("-m", "pretrain", "--list", "lorac"),
    ("-m", "pretrain", "lorac/in1k-r50", "--help"),
    ("-m", "benchmarks.tables"),
    (*("-m", "benchmarks.explain", "--results", str(ROOT / "results" / "reference")), *RECORD),
)
REFUSED = (
    ("-m", "pretrain", "lorac/unknown"),
    ("-m", "transfer", "cifar10_knn", "--ckpt", "absent"),
    ("-m", "transfer", "inspect", "absent"),
    ("-m", "transfer", "inspect", __file__),  # a text file
)
PROGRAM = """
import runpy, sys
if sys.argv[1] == "-m":
    module, sys.argv = sys.argv[2], sys.argv[2:]
    run = lambda: runpy.run_module(module, run_name="__main__", alter_sys=True)
else:
    sys.argv = sys.argv[1:]
    run = lambda: runpy.run_path(sys.argv[0], run_name="__main__")
status = 0
try:
    run()
except SystemExit as end:
    status = end.code
heavy = ("torch", "torchvision", "torch._dynamo", "pandas", "sklearn", "matplotlib")
print(*(name for name in heavy if name in sys.modules), status or 0)
"""


@pytest.mark.parametrize(
    ("status", "words"),
    [*((0, words) for words in LIGHT_COMMANDS), *((2, words) for words in REFUSED)],
    ids=lambda value: " ".join(value[-3:]) if isinstance(value, tuple) else str(value),
)
def test_a_command_that_computes_nothing_imports_no_torch(
    status: int, words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "results").mkdir()
    assert imports_and_status(words, tmp_path) == str(status)


@pytest.mark.parametrize("words", [(RUN_ALL, "--plan", "--ckpt"), ("-m", "transfer", "inspect")])
def test_a_plan_imports_no_torchvision(words: tuple[str, ...], tmp_path: Path) -> None:
    backbone = random_backbone(arch="resnet18", stem="cifar", seed=0)
    torch.save({"state_dict": backbone.state_dict}, tmp_path / "mine.pth")
    assert imports_and_status((*words, "mine.pth"), tmp_path) == "torch 0"


def imports_and_status(words: tuple[str, ...], folder: Path) -> str:
    """Return the large packages that a command imports, and its exit status."""
    command = [sys.executable, "-c", PROGRAM, *words]
    completed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return completed.stdout.splitlines()[-1]
