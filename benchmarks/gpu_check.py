"""python -m benchmarks.gpu_check: prove and measure this machine's GPUs, in at most ten minutes.

Every check prints a line as it ends. The same command goes on where it was interrupted; the answers
make results/gpu_check.md and results/gpu_check.json. With --device cpu the same checks run on the
CPU, so that they are tested where there is no GPU; their page stays below --runs.
"""

import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import tyro

from benchmarks.gpu.checks import (
    COMMANDS,
    Answer,
    Check,
    ChecksError,
    Kept,
    known_checks,
    run_checks,
)
from benchmarks.gpu.page import Machine, render
from transfer.checks.rates import write_rates
from transfer.record import commit
from transfer.running.atomic_files import WriteError, write_whole
from transfer.running.option_ranges import OptionError, Range, check_ranges

RANGES = {"minutes": Range(0, 24 * 60, open_below=True)}
"""Range of every numeric option, by the name of its field."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Check a machine's GPUs and measure them."""

    device: Literal["auto", "cuda", "cpu"] = "auto"
    """auto: the GPUs if there are any."""
    minutes: float = 10.0
    """Checks that do not fit are left for the next time."""
    again: bool = False
    """Forget the answers that are kept for this commit."""
    runs: Path = Path("runs")
    """Answers are kept below runs/gpu_check."""
    results: Path = Path("results")
    """Folder of the page about GPUs."""


def run(request: Request) -> int:
    """Run what has no answer yet, write page and JSON; return the exit status.

    OptionError if GPUs are asked for and there are none.
    """
    started_s = time.monotonic()
    device, machine = describe_machine(request.device)
    slug = re.sub(r"[^a-z0-9]+", "-", machine.device.lower()).strip("-")
    folder = request.runs / "gpu_check" / slug
    kept = Kept(folder / "answers.jsonl", machine.commit)
    if request.again:
        kept.path.unlink(missing_ok=True)
    checks = known_checks(device, COMMANDS)
    answers = kept.read()
    left = [check for check in checks if (check.command, check.name) not in answers]
    print(f"{machine.device}: {len(checks)} checks, {len(checks) - len(left)} answered before")
    for answer in run_checks(left, device, folder, started_s + 60 * request.minutes):
        answers[answer.command, answer.check] = answer
        kept.add(answer)
        print(line(answer), flush=True)
    if device == "cuda":
        keep_rates(request.runs, machine, list(answers.values()))
    page = write_page(request, device, machine, checks, list(answers.values()), folder)
    failed = sum(answer.status == "failed" for answer in answers.values())
    missing = len(checks) - len(answers)
    rest = f", {missing} not run: the same command goes on" if missing else ""
    minutes = (time.monotonic() - started_s) / 60
    print(f"{failed} of {len(answers)} failed{rest}; {minutes:.1f} min  ->  {page}")
    return 1 if failed or missing else 0


def describe_machine(choice: str) -> tuple[str, Machine]:
    """Return cuda or cpu, and the machine in words; OptionError if it has no such device."""
    import torch  # here and not above: --help needs none

    if choice == "cuda" and not torch.cuda.is_available():
        raise OptionError("--device cuda: this machine has no CUDA device; use --device cpu")
    cuda = choice != "cpu" and torch.cuda.is_available()
    software = f"torch {torch.__version__}"
    if cuda:
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        software += f", CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    else:
        names = [f"CPU, {torch.backends.cpu.get_cpu_capability()}"]
    counted = ", ".join(
        name if names.count(name) == 1 else f"{names.count(name)} x {name}"
        for name in dict.fromkeys(names)
    )
    date = time.strftime("%Y-%m-%d")
    machine = Machine(device=counted, gpu=names[0], software=software, commit=commit(), date=date)
    return "cuda" if cuda else "cpu", machine


def write_page(
    request: Request,
    device: str,
    machine: Machine,
    checks: Sequence[Check],
    answers: Sequence[Answer],
    folder: Path,
) -> Path:
    """Write page and JSON and return the page's path; WriteError if they cannot be written."""
    place = request.results if device == "cuda" else folder
    answered = {(answer.command, answer.check) for answer in answers}
    not_run = [check.name for check in checks if (check.command, check.name) not in answered]
    record = {"machine": asdict(machine), "answers": [asdict(one) for one in answers]}
    content = json.dumps(record | {"not_run": not_run}, indent=1) + "\n"
    write_whole(place / "gpu_check.json", content.encode(), "--results")
    page = place / "gpu_check.md"
    write_whole(page, render(machine, answers, not_run).encode(), "--results")
    return page


def keep_rates(runs: Path, machine: Machine, answers: Sequence[Answer]) -> None:
    """Keep the measured rates below --runs, for the GPU hours of plans on this machine."""
    measured = {one.check: dict(one.facts) for one in answers if one.status == "measured"}
    path = write_rates(runs, machine.gpu, measured, date=machine.date, commit=machine.commit)
    if path is not None:
        print(f"plans take their GPU hours from {path}")


def line(answer: Answer) -> str:
    """Return an answer in one line."""
    text = f"{time.strftime('%H:%M:%S')}  {answer.status:<8}  {answer.group}: {answer.check}"
    text += f"  {answer.seconds:.1f} s"
    return f"{text}  {answer.reason}" if answer.reason else text


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = tyro.cli(Request, args=words, description=__doc__)
    try:
        check_ranges(request, RANGES)
        return run(request)
    except OptionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (ChecksError, WriteError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
