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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from benchmarks.gpu.page import Answer, Machine, Status, complaint, render
from benchmarks.gpu.rates import write_rates
from pretrain.running.atomic_files import WriteError, explain_write_errors, write_whole
from pretrain.running.command_line import OptionError, Range, parse
from transfer.record import commit
from transfer.running.option_ranges import check_ranges

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
"""Time for pytest to write what was answered, before it is killed."""


Check = Callable[[str, Path, float], tuple[list[Answer], list[str]]]
"""Function of device, folder and deadline that returns answers, and what was not run."""


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
    folder = request.runs / "gpu_check" / _slug(machine.device) / (machine.commit or "no-commit")
    if request.again:
        shutil.rmtree(folder, ignore_errors=True)
    with explain_write_errors(folder, "--runs"):
        folder.mkdir(parents=True, exist_ok=True)
    print(f"{machine.device}; answers are kept in {folder}", flush=True)
    deadline_s = started_s + 60 * request.minutes
    place = request.results if device == "cuda" else folder
    answers: list[Answer] = []
    not_run: list[str] = []
    jobs = in_order(device)
    page = write_page(place, machine, answers, [name for name, _ in jobs])
    for number, (_, run_job) in enumerate(jobs, 1):
        found, left = run_job(device, folder, deadline_s)
        answers += found
        not_run += left
        # what ends this now must leave what was answered
        later = [name for name, _ in jobs[number:]]
        page = write_page(place, machine, answers, [*not_run, *later])
    if device == "cuda":
        keep_rates(request.runs, machine, answers)
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
    counted = ", ".join(
        name if names.count(name) == 1 else f"{names.count(name)} x {name}"
        for name in dict.fromkeys(names)
    )
    date = time.strftime("%Y-%m-%d")
    machine = Machine(device=counted, gpu=names[0], software=software, commit=commit(), date=date)
    return "cuda" if cuda else "cpu", machine


def in_order(device: str) -> list[tuple[str, Check]]:
    """Return the checks by name, those first that tell most: methods, then rates, other tests."""
    from benchmarks.gpu.measure import MEASUREMENTS

    files = {f"tests of {file.stem.removeprefix('test_')}": file for file in test_files(device)}
    tests = [(name, partial(run_tests, name, file)) for name, file in files.items()]
    measured = [(name, partial(measure, name)) for name in MEASUREMENTS]
    first = [one for one in tests if one[0] == FIRST]
    last = [one for one in tests if one[0] == LAST]
    others = [one for one in tests if one[0] not in (FIRST, LAST)]
    return [*first, *measured, *others, *last]


def run_tests(
    name: str, file: Path, device: str, folder: Path, deadline_s: float
) -> tuple[list[Answer], list[str]]:
    """Return the answers of a file of tests, and its name if it was not run whole.

    deadline_s: by time.monotonic(). Each file has a process of its own, since a GPU that has met an
    error answers nothing more to its process; its answers are kept when it ends by itself.
    """
    not_run = []
    stem = name.removeprefix("tests of ")
    whole, part = folder / f"{stem}.xml", folder / f"{stem}.some.xml"
    if not whole.exists() and time.monotonic() < deadline_s:
        part.unlink(missing_ok=True)
        status = _run_pytest(file, CHOSEN[device], part, deadline_s)
        if status == INTERRUPTED:
            not_run.append(f"what follows in {stem}")
        if status >= 0 and part.exists():
            part.replace(whole)
    if not whole.exists():
        not_run.append(name)
    found = next((one for one in (whole, part) if one.exists()), None)
    return list(read_tests(found)) if found else [], not_run


def test_files(device: str) -> list[Path]:
    """Return the files with tests for a device: those of tests/gpu, then others with the marker."""
    own = sorted((TESTS / "gpu").glob("test_*.py"))
    others = sorted(set(TESTS.rglob("test_*.py")) - {*own}) if device == "cuda" else []
    return [*own, *(file for file in others if "pytest.mark.gpu" in file.read_text())]


def _run_pytest(file: Path, chosen: str, answers: Path, deadline_s: float) -> int:
    """Run the chosen tests of a file; return pytest's exit status, negative if it was stopped."""
    words = [sys.executable, "-m", "pytest", "--verbose", "-p", "no:cacheprovider", "-rs"]
    words += ["--numprocesses", "0", "-m", chosen, str(file)]
    left_s = min(PATIENCE_S, deadline_s - time.monotonic())
    with subprocess.Popen([*words, f"--junitxml={answers.absolute()}"], cwd=ROOT) as process:
        try:
            return process.wait(max(0.0, left_s))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            process.kill()
    return -signal.SIGKILL


def read_tests(file: Path) -> Iterator[Answer]:
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


def measure(
    name: str, device: str, folder: Path, deadline_s: float
) -> tuple[list[Answer], list[str]]:
    """Return a measurement's answer, kept or new; its name if the time (monotonic) is over."""
    file = folder / f"{_slug(name)}.json"
    reason = ""
    if not file.exists():
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return [], [name]
        words = [sys.executable, "-m", "benchmarks.gpu.measure", name, device, str(file)]
        log = file.with_suffix(".log")
        try:
            with log.open("w") as opened:
                done = subprocess.run(
                    words, cwd=ROOT, stderr=opened, check=False, timeout=min(PATIENCE_S, left_s)
                )
            lines = log.read_text(errors="replace").strip().splitlines()
            reason = f"ended with {done.returncode}: {lines[-1] if lines else ''}"
        except subprocess.TimeoutExpired:
            if left_s < PATIENCE_S:
                return [], [name]
            reason = f"no answer within {PATIENCE_S:.0f} s"
    content: dict[str, Any] = {"seconds": 0.0, "reason": reason, "facts": {}}
    status: Status = "failed"
    if file.exists():
        content = json.loads(file.read_text())
        wrong = complaint(name, content["facts"])
        content["reason"] = content["reason"] or wrong
        status = "failed" if wrong else "measured" if content["facts"] else "skipped"
    answer = Answer(check=name, group="rates", status=status, **content)
    line = f"{status:<8}  {name}  {answer.seconds:.1f} s"
    print(f"{line}  {answer.reason}" if answer.reason else line, flush=True)
    return [answer], []


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


def keep_rates(runs: Path, machine: Machine, answers: Sequence[Answer]) -> None:
    """Keep the measured rates below --runs, for the GPU hours of plans on this machine."""
    measured = {one.check: dict(one.facts) for one in answers if one.status == "measured"}
    path = write_rates(runs, machine.gpu, measured, date=machine.date, commit=machine.commit)
    if path is not None:
        print(f"plans take their GPU hours from {path}")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(Request, words, description=__doc__)
    try:
        check_ranges(request, RANGES)
        return run(request)
    except OptionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except WriteError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
