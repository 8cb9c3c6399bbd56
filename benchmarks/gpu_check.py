"""python -m benchmarks.gpu_check: prove and measure this machine's GPUs, in at most ten minutes.

First the methods' tests against the CPU, then the speed of steps, features and probes, then all
other tests (pytest -m gpu), each file and each measurement in a process of its own. The same
command goes on where it was interrupted; the answers make results/gpu_check.md and
results/gpu_check.json. With --device cpu the same is done on the CPU, so that it is tested where
there is no GPU; that page stays below --runs.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple
from xml.etree import ElementTree

from benchmarks.gpu.page import Answer, Machine, complaint, rates_of, render
from pretrain.running.atomic_files import explain_write_errors, write_whole
from pretrain.running.command_line import (
    OptionError,
    Range,
    check_ranges,
    one_line_errors,
    parse,
    run_command,
)
from transfer.frozen.pass_hours import save_rates
from transfer.record import commit

ROOT = Path(__file__).parents[1]
RANGES = {"minutes": Range(0, 24 * 60, open_below=True)}
"""Range of every numeric option, by the name of its field."""
TESTS = ROOT / "tests"
CHOSEN = {"cuda": "gpu", "cpu": "not gpu"}
"""Marked tests that are run on a device."""
INTERRUPTED = 2
"""Exit status of pytest after an error of CUDA, which leaves the rest of a file unanswered."""
PATIENCE_S = 300.0
"""A file of tests, or a measurement, may take so long."""
FIRST, LAST = "tests of methods", "tests of compiled"
END_S = 30.0
"""Time for a check to end its processes, before it is killed."""


class Check(NamedTuple):
    """A file of tests, or a measurement: a process that writes its answers to a file."""

    name: str
    suffix: str
    """Suffix of the file of answers: .xml of tests, .json of a measurement."""
    words: list[str]
    """Command, to which the file of answers is added."""


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
    described = _slug(f"{machine.device} {machine.software}")
    folder = request.runs / "gpu_check" / described / (machine.commit or "no-commit")
    if request.again:
        shutil.rmtree(folder, ignore_errors=True)
    with explain_write_errors(folder, "--runs"):
        folder.mkdir(parents=True, exist_ok=True)
    print(f"{machine.device}; answers are kept in {folder}", flush=True)
    deadline_s = started_s + 60 * request.minutes
    place = request.results if device == "cuda" else folder
    answers: list[Answer] = []
    not_run: list[str] = []
    checks = in_order(device)
    page = write_page(place, machine, answers, [check.name for check in checks])
    for number, check in enumerate(checks, 1):
        found, left = run_check(check, folder, deadline_s)
        for one in found:
            if one.group == "rates":  # pytest has told its tests
                line = f"{one.status:<8}  {one.check}  {one.seconds:.1f} s  {one.reason}"
                print(line.rstrip(), flush=True)
        answers += found
        not_run += left
        # what ends this now must leave what was answered
        page = write_page(place, machine, answers, [*not_run, *(c.name for c in checks[number:])])
    if device == "cuda" and (rates := rates_of(machine, answers)):
        print(f"plans take their GPU hours from {save_rates(request.runs, rates)}")
    failed = sum(answer.status == "failed" for answer in answers)
    rest = f", {len(not_run)} not run: the same command goes on" if not_run else ""
    minutes = (time.monotonic() - started_s) / 60
    print(f"{failed} of {len(answers)} failed{rest}; {minutes:.1f} min  ->  {page}")
    return 1 if failed or not_run else 0


def describe_machine(choice: str) -> tuple[str, Machine]:
    """Return cuda or cpu, and the machine in words; OptionError if it has no such device."""
    import torch  # here and not above: --help needs none

    if choice == "cuda" and not torch.cuda.is_available():
        raise OptionError(f"--device {choice}: this machine has no CUDA device; use --device cpu")
    cuda = choice != "cpu" and torch.cuda.is_available()
    software = f"torch {torch.__version__}"
    if cuda:
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        software += f", CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    else:
        names = [f"CPU, {torch.backends.cpu.get_cpu_capability()}"]
    counted = ", ".join(f"{n} x {name}" if n > 1 else name for name, n in Counter(names).items())
    date = time.strftime("%Y-%m-%d")
    machine = Machine(device=counted, gpu=names[0], software=software, commit=commit(), date=date)
    return "cuda" if cuda else "cpu", machine


def in_order(device: str) -> list[Check]:
    """Return the checks, those first that tell most: methods, then rates, other tests."""
    from benchmarks.gpu.measure import MEASUREMENTS

    tests = []
    for file in test_files(device):
        words = ["pytest", "--verbose", "-p", "no:cacheprovider", "-rs", "--numprocesses", "0"]
        words += ["-m", CHOSEN[device], str(file), "--junitxml"]
        tests.append(Check(f"tests of {file.stem.removeprefix('test_')}", ".xml", words))
    rates = [
        Check(name, ".json", ["benchmarks.gpu.measure", name, device]) for name in MEASUREMENTS
    ]
    place = {FIRST: 0, LAST: 3}
    return sorted(
        [*rates, *tests], key=lambda check: place.get(check.name, 1 if check in rates else 2)
    )


def test_files(device: str) -> list[Path]:
    """Return the files with tests for a device: those of tests/gpu, then others with the marker."""
    own = sorted((TESTS / "gpu").glob("test_*.py"))
    others = sorted(set(TESTS.rglob("test_*.py")) - {*own}) if device == "cuda" else []
    return [*own, *(file for file in others if "pytest.mark.gpu" in file.read_text())]


def run_check(check: Check, folder: Path, deadline_s: float) -> tuple[list[Answer], list[str]]:
    """Return the answers of a check, kept or new, and what of it was not run.

    deadline_s: by time.monotonic(). Each check has a process of its own, since a GPU that has met
    an error answers nothing more to its process; its answers are kept for the next time
    when it ends by itself.
    """
    read = read_tests if check.suffix == ".xml" else read_measurement
    file = folder / f"{_slug(check.name)}{check.suffix}"
    if file.exists():
        return list(read(check.name, file)), []
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        return [], [check.name]
    new = file.with_name(f"new{check.suffix}")
    new.unlink(missing_ok=True)
    status = _run([*check.words, str(new.absolute())], min(PATIENCE_S, left_s))
    found = list(read(check.name, new)) if new.exists() else []
    if status is None and left_s <= PATIENCE_S:
        return found, [check.name]
    if status is None or not new.exists():
        ended = f"within {PATIENCE_S:.0f} s" if status is None else f"at its end with {status}"
        group = "rates" if check.suffix == ".json" else "tests"
        reason = f"no answer {ended}"
        failed = Answer(check=check.name, group=group, status="failed", reason=reason)
        return [*found, failed], []
    if status == INTERRUPTED:  # the whole file is run again the next time
        return found, [f"what follows in {check.name}"]
    new.replace(file)
    return found, []


def _run(words: Sequence[str], limit_s: float) -> int | None:
    """Run a module of Python; return its exit status, None if it was stopped at the limit."""
    with subprocess.Popen([sys.executable, "-m", *words], cwd=ROOT) as process:
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            process.kill()
    return None


def read_tests(_: str, file: Path) -> Iterator[Answer]:
    """Yield the answers in pytest's XML."""
    for case in ElementTree.parse(file).getroot().iter("testcase"):
        facts = {
            str(entry.get("name")): _number(str(entry.get("value")))
            for entry in case.iter("property")
        }
        problem = next((one for one in case if one.tag in ("failure", "error", "skipped")), None)
        skipped = problem is not None and problem.tag == "skipped"
        message = "" if problem is None else str(problem.get("message"))
        yield Answer(
            check=_in_words(str(case.get("name"))),
            group=str(case.get("classname")).rpartition(".test_")[2].replace("_", " "),
            status="passed" if problem is None else "skipped" if skipped else "failed",
            seconds=float(case.get("time", 0)),
            reason=message.strip().partition("\n")[0].removeprefix("AssertionError: "),
            facts=facts,
        )


def _in_words(test: str) -> str:
    """Return "a step: moco" of "test_a_step[cuda-moco]"."""
    name, _, parameters = test.removesuffix("]").partition("[")
    chosen = [word for word in parameters.split("-") if word not in ("", "cpu", "cuda")]
    return name.removeprefix("test_").replace("_", " ") + ": " * bool(chosen) + ", ".join(chosen)


def read_measurement(name: str, file: Path) -> Iterator[Answer]:
    """Yield the answer of a measurement, failed if its facts are wrong."""
    content: dict[str, Any] = json.loads(file.read_text())
    if wrong := complaint(name, content["facts"]):
        content |= {"status": "failed", "reason": wrong}
    yield Answer(check=name, group="rates", **content)


def write_page(
    place: Path, machine: Machine, answers: Sequence[Answer], not_run: Sequence[str]
) -> Path:
    """Write page and JSON and return the page's path; WriteError if they cannot be written."""
    record = {"machine": asdict(machine), "answers": [asdict(one) for one in answers]}
    content = json.dumps(record | {"not_run": list(not_run)}, indent=1) + "\n"
    write_whole(place / "gpu_check.json", content.encode(), "--results")
    page = place / "gpu_check.md"
    write_whole(page, render(machine, answers, not_run).encode(), "--results")
    return page


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


@one_line_errors(OptionError)
def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(Request, words, description=__doc__)
    check_ranges(request, RANGES)
    return run(request)


if __name__ == "__main__":
    run_command(main)
