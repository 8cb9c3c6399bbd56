"""The commands of an installed wheel: ssl-benchmark, ssl-transfer, ssl-pretrain and ssl-slurm.

Each runs the module that `python -m` runs, but finds the suite where it is installed, also in a
folder that has a transfer/ or benchmarks/ of its own.
"""

import os
import runpy
import sys

SUBCOMMANDS = {
    "tables": "benchmarks.tables",
    "figures": "benchmarks.figures",
    "report": "benchmarks.report",
    "explain": "benchmarks.explain",
    "status": "benchmarks.status",
    "power": "benchmarks.power",
    "verify": "benchmarks.verify",
    "export": "benchmarks.export",
    "gpu-check": "benchmarks.gpu_check",
}
"""First words of ssl-benchmark; any other command line is one of benchmarks/run_all.py."""


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
    # processes that this one starts must not import from the present folder either
    os.environ["PYTHONSAFEPATH"] = "1"
    runpy.run_module(module, run_name="__main__", alter_sys=True)
