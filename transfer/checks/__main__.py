"""python -m transfer.checks: compare this machine's GPU with its CPU, and measure it.

Standard output carries a line of JSON before and after each check, and nothing else. The exit
status is 0 when all have answered, whether or not they passed, and 3 after an error that leaves the
GPU unusable in this process.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TextIO

import tyro

from transfer.checks.catalog import all_checks
from transfer.checks.report import DEAD_DEVICE, Check, Place, run_checks
from transfer.running.option_ranges import OptionError


@dataclass(frozen=True, kw_only=True)
class Request:
    """Compare a GPU with the CPU, and measure it."""

    device: Literal["cuda", "cpu"] = "cuda"
    """Device to check; on cpu the same checks are small."""
    list_checks: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Print a line per check and run none."""
    skip: tuple[str, ...] = ()
    """Names of checks that are left out."""
    only: tuple[str, ...] = ()
    """Names of the checks to run; all if none is given."""
    folder: Path | None = None
    """Folder for the files of the checks; a temporary one if none is given."""


def selected(request: Request) -> list[Check]:
    """Return the checks to run; OptionError for an unknown name."""
    checks = all_checks()
    known = {check.name for check in checks}
    for name in (*request.skip, *request.only):
        if name not in known:
            raise OptionError(f"there is no check {name!r}; --list prints all names")
    return [
        check
        for check in checks
        if check.name not in request.skip and (not request.only or check.name in request.only)
    ]


def run(request: Request, answers: TextIO) -> int:
    """Run the checks and write their lines to `answers`; return the exit status.

    OptionError for an unknown name, or if the device is not there.
    """
    checks = selected(request)
    if request.list_checks:
        for check in checks:
            listed = {"check": check.name, "group": check.group, "seconds": check.seconds}
            print(json.dumps(listed), file=answers)
        return 0
    if request.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch looks for GPUs
    import torch

    from transfer.finetuning.gpu import use_expandable_segments

    use_expandable_segments()  # as trainings of detectors do; before CUDA starts
    if request.device == "cuda" and not torch.cuda.is_available():
        raise OptionError("--device cuda: this machine has no CUDA device; use --device cpu")
    with tempfile.TemporaryDirectory() as temporary, others_on_stderr(answers) as write:
        place = Place(device=request.device, folder=request.folder or Path(temporary))
        answered = sum(1 for _ in run_checks(checks, place, write))
    return 0 if answered == len(checks) else DEAD_DEVICE


@contextmanager
def others_on_stderr(answers: TextIO) -> Iterator[Callable[[str], object]]:
    """Yield what writes a line to `answers`; all else that reaches stdout goes to stderr.

    That includes what libraries and subprocesses write to file descriptor 1.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    with os.fdopen(os.dup(1), "w") as first:
        stream = first if answers is sys.__stdout__ else answers
        os.dup2(2, 1)
        try:
            yield lambda line: print(line, file=stream, flush=True)
        finally:
            os.dup2(kept, 1)
            os.close(kept)


def main(words: list[str], answers: TextIO) -> int:
    """Run the command line; return its exit status."""
    request = tyro.cli(Request, args=words, description=__doc__)
    try:
        return run(request, answers)
    except OptionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout))
