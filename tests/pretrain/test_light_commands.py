"""Command lines that compute nothing import no torch."""

import subprocess
import sys

import pytest

PROGRAM = """
import runpy, sys
module, sys.argv = sys.argv[1], sys.argv[1:]
try:
    runpy.run_module(module, run_name="__main__", alter_sys=True)
except SystemExit as end:
    status = end.code
print("torch" in sys.modules, status)
"""


@pytest.mark.parametrize(
    "words",
    [
        "pretrain --help",
        "pretrain --list lorac",
        "pretrain lorac/in1k-r50 --help",
        "pretrain lorac/unknown",
        "pretrain.speed.benchmark --help",
        "pretrain.speed.bench_views --help",
        "slurm --help",
    ],
)
def test_a_command_that_computes_nothing_imports_no_torch(words: str) -> None:
    command = [sys.executable, "-c", PROGRAM, *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"False {2 if 'unknown' in words else 0}"
