"""Command lines that compute nothing import no torch."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN_ALL = str(ROOT / "benchmarks" / "run_all.py")
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
    ("-m", "pretrain", "--list", "lorac"),
    ("-m", "pretrain", "lorac/in1k-r50", "--help"),
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
print("torch" in sys.modules, status or 0)
"""


def last_line(words: tuple[str, ...], folder: Path) -> str:
    command = [sys.executable, "-c", PROGRAM, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("words", LIGHT_COMMANDS, ids=lambda words: " ".join(words[-3:]))
def test_a_command_that_computes_nothing_imports_no_torch(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    assert last_line(words, tmp_path) == "False 0"


def test_a_wrong_recipe_is_refused_without_torch(tmp_path: Path) -> None:
    assert last_line(("-m", "pretrain", "lorac/unknown"), tmp_path) == "False 2"


@pytest.mark.parametrize("words", [("cifar10_knn", "--ckpt", "absent"), ("inspect", "absent")])
def test_a_wrong_path_is_refused_without_torch(words: tuple[str, ...], tmp_path: Path) -> None:
    assert last_line(("-m", "transfer", *words), tmp_path) == "False 2"


def test_a_record_is_explained_without_torch() -> None:
    words = ("-m", "benchmarks.explain", "--name", "cifar10-vicreg", "--task", "cifar10_knn")
    assert last_line(words, ROOT) == "False 0"


def test_tables_are_written_without_torch(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    assert last_line(("-m", "benchmarks.tables"), tmp_path) == "False 0"
