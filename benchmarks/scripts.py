"""The commands of an installed wheel: ssl-benchmark, ssl-transfer, ssl-pretrain and ssl-slurm.

Each runs the same module as `python -m`, but always imports the installed suite, even if the
current folder contains another transfer/ or benchmarks/.
"""

import os
import runpy
import sys

SUBCOMMANDS = {
    "tables": "benchmarks.tables",
    "figures": "benchmarks.figures",
    "report": "benchmarks.report",
    "explain": "benchmarks.explain",
    "power": "benchmarks.power",
    "verify": "benchmarks.verify",
    "export": "benchmarks.export",
    "gpu-check": "benchmarks.gpu_check",
}
"""Modules by subcommand of ssl-benchmark; without one, it runs benchmarks/run_all.py."""


def benchmark() -> None:
    """Run `ssl-benchmark [SUBCOMMAND]`."""
    module = SUBCOMMANDS.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if module is not None:
        del sys.argv[1]
    _run(module or "benchmarks.run_all")


def transfer() -> None:
    """Run `ssl-transfer`."""
    _run("transfer")


def pretrain() -> None:
    """Run `ssl-pretrain`."""
    _run("pretrain")


def slurm() -> None:
    """Run `ssl-slurm`."""
    _run("slurm")


def _run(module: str) -> None:
    # child processes inherit it, so that they do not import from the current folder either
    os.environ["PYTHONSAFEPATH"] = "1"
    runpy.run_module(module, run_name="__main__", alter_sys=True)
