"""Faults of machines around the commands of the campaign: python -m tests.campaign --faults 1.

Each attempt does one kind of damage to one command, looks at the reason that it gives, and starts
it again on a sound machine. The result must equal the undisturbed one to the bit.
"""

import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.reliability import Row, Section, write_section
from tests.campaign.campaign import keep_logs, places_of, prepare_inputs, undisturbed_result
from tests.campaign.outcome import CACHE, differences, outcome
from tests.campaign.processes import Running, descendants, running, send
from tests.campaign.subjects import Places
from tests.campaign.trial import Undisturbed, commands_of, start_again, start_anew

NO_SPACE = r"(cannot|could not) be written|File too large|not up to date"
ENDED = r"killed by SIGKILL|has lost another process|memory (ran|has probably run) out"
LOCKS = r"locks"
CHANGED = r"has changed while|is not the data|unreadable|cannot be read|cannot be decoded|broken"
TEXT = (
    "The commands of the campaign on machines with faults. Survived: a command that fails says why "
    "in its last lines, and the same command on a sound machine ends with the undisturbed result "
    "to the bit. A damaged file may be refused by name, and is then deleted."
)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One kind of damage to one subject."""

    subject: str
    expected: Undisturbed
    places: Places
    draw: random.Random

    def compare(self) -> str:
        """Return how the result differs from the undisturbed one; empty if it does not."""
        return differences(self.expected.parts, outcome(self.places.out))

    def run_again(self) -> str:
        """Start the commands on a sound machine; return what is wrong, or nothing."""
        commands = commands_of(self.subject, self.places)
        return start_again(commands, self.places, self.expected, []) or self.compare()


def disturb(
    attempt: Attempt,
    damage: Callable[[Attempt, Running], None],
    reason: str,
    repair: Callable[[], None] | None = None,
) -> str:
    """Damage a running command; return what is wrong with its end, its reason, or its result.

    reason: pattern of the last lines of a command that fails. repair: undoes the damage before the
    command is started again.
    """
    places, expected = attempt.places, attempt.expected
    start_anew(attempt.subject, places)
    with running(commands_of(attempt.subject, places), places.out.with_suffix(".log")) as run:
        if not run.wait(attempt.draw.random() * expected.duration_s):
            damage(attempt, run)
        if not run.wait(expected.limit_s):
            return "hangs"
        run.wait_for_orphans(5)
        failed = any(run.results())
        if failed and not re.search(reason, "\n".join(run.printed().splitlines()[-4:])):
            return f"{run.results()} without the reason: {run.last_line()}"
    if repair is not None:
        repair()
        # a result of other data is right until they are put back: its record names the data
        failed = failed or bool(attempt.compare())
    return attempt.run_again() if failed else attempt.compare()


def forbid_writes(attempt: Attempt, run: Running) -> None:
    """Let no process write to a file any more, as on a full disk."""
    for pid in descendants(os.getpid()):
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))


def kill_a_started_process(attempt: Attempt, run: Running) -> None:
    """Kill a process that a command has started, as the kernel does where memory runs out."""
    if pids := [pid for pid in descendants(os.getpid()) if pid not in run.leaders]:
        send(signal.SIGKILL, [attempt.draw.choice(pids)])


def full_disk(attempt: Attempt) -> str:
    """Forbid all writes from a random moment on."""
    return disturb(attempt, forbid_writes, NO_SPACE)


def killed_worker(attempt: Attempt) -> str:
    """Kill a process that a command has started."""
    return disturb(attempt, kill_a_started_process, ENDED)


def replaced_image(attempt: Attempt) -> str:
    """Replace an image of the data by another one while the command runs, then put it back."""
    inputs = attempt.places.out.with_name("inputs")
    shutil.rmtree(inputs, ignore_errors=True)
    shutil.copytree(attempt.places.inputs, inputs)
    folder = {"SVM": "VOC2007", "detector": "coco"}[attempt.subject]
    files = [file for file in sorted(inputs.rglob("*.jpg")) if folder in file.parts]
    file = attempt.draw.choice(files)
    content = file.read_bytes()
    other = next(f.read_bytes() for f in files if f.stat().st_size != len(content))
    changed = replace(attempt, places=Places(inputs=inputs, out=attempt.places.out))

    def put_back() -> None:
        _overwrite(file, content)

    return disturb(changed, lambda *_: _overwrite(file, other), CHANGED, repair=put_back)


def _overwrite(file: Path, content: bytes) -> None:
    file.write_bytes(content)


def damaged_file(attempt: Attempt) -> str:
    """Kill the command, then cut a file short or fill its end with zeros, as a dying machine."""
    places, draw = attempt.places, attempt.draw
    start_anew(attempt.subject, places)
    with running(commands_of(attempt.subject, places), places.out.with_suffix(".log")) as run:
        # beyond 1, the command has ended: its result is damaged
        run.wait(draw.uniform(0.2, 1.5) * attempt.expected.duration_s)
    files = [f for f in sorted(places.out.rglob("*")) if f.is_file() and not f.is_symlink()]
    files = [file for file in files if file.stat().st_size and _is_state(file, places.out)]
    if not files:
        return attempt.run_again()
    damaged = draw.choice(files)
    content = damaged.read_bytes()
    start = draw.choice([0, draw.randrange(len(content))])
    zeros = bytes(len(content) - start) if draw.random() < 0.5 else b""
    damaged.write_bytes(content[:start] + zeros)
    name = damaged.relative_to(places.out).as_posix()
    what = f"{name} {'zeros' if zeros else 'cut'} from {start} of {len(content)}"
    problem = attempt.run_again()
    if problem and damaged.name in problem and "ends with" in problem:
        damaged.unlink()  # as the refusal says
        problem = attempt.run_again()
    if problem and name.startswith(CACHE):
        # a finished record is not computed again, so nothing has read the damaged entry yet
        shutil.rmtree(places.out / "results")
        problem = attempt.run_again()
    return f"{what}: {problem}" if problem else ""


def _is_state(file: Path, out: Path) -> bool:
    """Return whether a command reads the file again; the data and event files are not its own."""
    name = file.relative_to(out)
    return "tensorboard" not in name.parts and file.name != "small-data.json"


def on_a_faulty_machine(fault: str, reason: str, copies: int = 1) -> Callable[[Attempt], str]:
    """Return the attempt that runs commands with a fault of `faulty.py`, then without.

    reason: pattern of the last line of a command that fails. copies: how often each is started.
    """

    def run_there(attempt: Attempt) -> str:
        places, expected = attempt.places, attempt.expected
        start_anew(attempt.subject, places)
        words = commands_of(attempt.subject, places) * copies
        commands = tuple(("tests.campaign.faulty", fault, *command) for command in words)
        with running(commands, places.out.with_suffix(".log")) as run:
            if not run.wait(copies * expected.limit_s):
                return "hangs"
            if any(run.results()) and not re.search(reason, run.printed()):
                return f"{run.results()} without the reason: {run.last_line()}"
        return attempt.run_again()

    return run_there


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A kind of damage, and the subjects that it is done to."""

    attempt: Callable[[Attempt], str]
    subjects: tuple[str, ...]


LONGER = ("curves", "detector", "pre-training")
FAULTS: Mapping[str, Fault] = {
    "no write succeeds from a random moment on": Fault(
        attempt=full_disk,
        subjects=("SVM", "tables", "make-corruptions", "few labels", "linear probe", *LONGER),
    ),
    "a process that a command has started is killed": Fault(
        attempt=killed_worker,
        subjects=("make-corruptions", "extraction, two processes", "run_all --workers 2"),
    ),
    "an image is replaced while a command runs": Fault(
        attempt=replaced_image, subjects=("SVM", "detector")
    ),
    "a file is cut short or filled with zeros": Fault(
        attempt=damaged_file,
        subjects=("SVM", "tables", "make-corruptions", "few labels", "linear probe", *LONGER),
    ),
    "the clock jumps": Fault(
        attempt=on_a_faulty_machine("jumping-clock", "^$"), subjects=("SVM", "curves", "few labels")
    ),
    "locks are refused": Fault(
        attempt=on_a_faulty_machine("no-locks", LOCKS),
        subjects=("SVM", "few labels", "linear probe"),
    ),
    "two machines do not see each other's locks": Fault(
        attempt=on_a_faulty_machine("unseen-locks", ".", copies=2),
        subjects=("SVM", "linear probe", "extraction, two processes", "few labels"),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of one attempt, a line of the log."""

    kind: str
    number: int
    subject: str
    problem: str
    """Explanation of what was not survived; empty if all was."""


def run(folder: Path, *, rounds: int, seed: int, minutes: float = 0.0) -> list[Outcome]:
    """Make the attempts that the log lacks; return the outcomes of all.

    rounds: attempts for each kind and subject. minutes: time after which no attempt begins; 0: no
    limit.
    """
    folder = folder.resolve()
    inputs, log = prepare_inputs(folder), folder / f"faults-seed{seed}.jsonl"
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    outcomes = [Outcome(**json.loads(line)) for line in lines]
    done = {(outcome.kind, outcome.number) for outcome in outcomes}
    most = rounds * max(len(fault.subjects) for fault in FAULTS.values())
    planned = [
        (kind, number)
        for number in range(most)
        for kind, fault in FAULTS.items()
        if number < rounds * len(fault.subjects) and (kind, number) not in done
    ]
    begin_s = time.monotonic()
    for kind, number in planned:
        if minutes and time.monotonic() - begin_s > 60 * minutes:
            break
        end = _attempt(folder, inputs, kind, number, seed)
        outcomes.append(end)
        with log.open("a") as file:
            file.write(json.dumps(asdict(end)) + "\n")
        print(f"{kind}  {end.subject}  {end.problem or 'survived'}", file=sys.stderr, flush=True)
    return outcomes


def _attempt(folder: Path, inputs: Path, kind: str, number: int, seed: int) -> Outcome:
    fault = FAULTS[kind]
    subject = fault.subjects[number % len(fault.subjects)]
    places = places_of(folder, inputs, subject)
    attempt = Attempt(
        subject=subject,
        expected=undisturbed_result(folder, subject, places),
        places=places,
        draw=random.Random(f"{seed} {kind} {number}"),
    )
    problem = fault.attempt(attempt)
    if problem:
        keep_logs(folder / "failed" / f"{kind} {number}", places, failed=True)
    return Outcome(kind=kind, number=number, subject=subject, problem=problem)


def write_counts(results: Path, outcomes: Sequence[Outcome], seed: int, command: str) -> Path:
    """Write the counts by kind to the page of reliability; return the page's path."""
    rows = []
    for kind in dict.fromkeys(end.kind for end in outcomes):
        tried = [end for end in outcomes if end.kind == kind]
        failed = [f"{end.subject}: {end.problem}" for end in tried if end.problem]
        survived = len(tried) - len(failed)
        rows.append(
            Row(kind=kind, tried=len(tried), survived=survived, not_survived="; ".join(failed))
        )
    section = Section(
        name="faults",
        title="Faults of machines",
        text=TEXT,
        rows=tuple(rows),
        seed=seed,
        command=command,
    )
    return write_section(results, section)
