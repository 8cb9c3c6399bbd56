"""python -m pretrain.checks: what pre-training computes on this machine's GPU, against the CPU.

Each check prints a line of JSON before it starts and one when it ends, on stdout; all else goes to
stderr. The exit status is 0 when all lines are printed, 2 for a wrong request, and 3 when an error
of CUDA has made the process useless: start it again with --skip and the names of finished checks.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from pretrain.checks.catalog import Check, all_checks
from pretrain.checks.report import EXIT_CUDA_ERROR, run_check
from pretrain.command import DeviceChoice


@dataclass(frozen=True, kw_only=True)
class Options:
    """Check pre-training on a device."""

    device: DeviceChoice = "auto"
    list_checks: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Print a line for each check, and run none."""
    only: tuple[str, ...] = ()
    """Names of the checks to run; none: all."""
    skip: tuple[str, ...] = ()
    """Names of checks that are not run."""
    folder: Path | None = None
    """Folder for generated images and runs; without it they are deleted at the end."""


def main(words: list[str], write: Callable[[str], object], checks: list[Check]) -> int:
    """Run the command line on some checks; write each line of JSON; return the exit status."""
    options = tyro.cli(Options, args=words, description=__doc__)
    known = {check.line.name for check in checks}
    unknown = sorted({*options.only, *options.skip} - known)
    if unknown:
        print(f"error: no check is called {', '.join(unknown)}; see --list", file=sys.stderr)
        return 2
    chosen = [
        check
        for check in checks
        if (not options.only or check.line.name in options.only)
        and check.line.name not in options.skip
    ]
    if options.list_checks:
        for check in chosen:
            write(check.line.listed())
        return 0
    from pretrain.running.launch import LaunchError  # not above: --help and --list need no torch

    try:
        with working_folder(options.folder) as folder:
            return run(chosen, options.device, folder, write)
    except LaunchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def run(
    checks: list[Check], device: DeviceChoice, folder: Path, write: Callable[[str], object]
) -> int:
    """Run the checks in one process; return the exit status."""
    import torch

    from pretrain.checks.place import Place, release_memory
    from pretrain.running.launch import join_processes

    with join_processes(device) as process:
        place = Place(device=process.device, folder=folder)
        for check in checks:
            if not run_check(check.line, partial(check.run, place), write):
                return EXIT_CUDA_ERROR
            release_memory(place)
            torch.backends.cudnn.benchmark = False  # trainings switch it on
    return 0


@contextlib.contextmanager
def working_folder(chosen: Path | None) -> Iterator[Path]:
    """Create the chosen folder, or one that is deleted at the end."""
    if chosen is None:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
    else:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen


@contextlib.contextmanager
def lines_on_stdout() -> Iterator[Callable[[str], object]]:
    """Give a function that prints a line; whatever else is printed to stdout goes to stderr.

    That holds for the output of libraries and of processes that are started as well.
    """
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(own, "w") as stdout:
        try:
            yield lambda line: print(line, file=stdout, flush=True)
        finally:
            sys.stdout.flush()
            os.dup2(own, 1)


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv[1:]):
        tyro.cli(Options, args=["--help"], description=__doc__)
    with lines_on_stdout() as write_line:
        status = main(sys.argv[1:], write_line, all_checks())
    sys.exit(status)
