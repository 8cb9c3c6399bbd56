"""One trial: a command is started, disturbed, and started again until it ends by itself."""

import json
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tests.campaign.disturbance import KINDS
from tests.campaign.outcome import differences, outcome
from tests.campaign.processes import Commands, running
from tests.campaign.subjects import SUBJECTS, Places

MAX_STARTS = 4
"""Starts after the disturbed one; a second one is needed where a process outlives the first."""
BUSY = ("in use by another run", "another process works on this cell")
"""Parts of the messages of a command whose folder another process has locked."""
ORPHANS_S = 120.0
"""Time that processes may outlive their command until they have saved."""


@dataclass(frozen=True, kw_only=True)
class Undisturbed:
    """The result of a subject that nothing has disturbed."""

    duration_s: float
    parts: dict[str, str]
    """Digest of each part of the result."""

    @property
    def limit_s(self) -> float:
        """Longest time of a start; a busy machine is slower than the measured run."""
        return 60.0 + 20.0 * self.duration_s


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The outcome of one trial, a line of the log."""

    number: int
    seed: int
    subject: str
    kind: str
    share: float
    """Moment of the disturbance as a share of the undisturbed duration."""
    in_time: bool
    """True if the command still ran at that moment; otherwise nothing was disturbed."""
    statuses: list[list[int]]
    """Exit statuses of each start."""
    problem: str
    """Explanation of what was not survived; empty if all was."""
    traceback: bool
    """True if a command asked to stop, or started again, has printed a traceback."""
    wall_s: float

    @property
    def survived(self) -> bool:
        """Return whether the result equals the undisturbed one."""
        return not self.problem

    def line(self) -> str:
        """Return the trial as a line of the log."""
        return json.dumps(asdict(self))


def run_undisturbed(subject: str, places: Places) -> Undisturbed:
    """Run a subject to its end and return its result; RuntimeError if it fails."""
    start_anew(subject, places)
    start_s = time.monotonic()
    log = places.out.with_suffix(".log")
    with running(commands_of(subject, places), log) as run:
        run.wait(600)
        run.wait_for_orphans(5)
    if run.results() != [0] * len(run.leaders):
        raise RuntimeError(f"{subject} fails undisturbed: {run.results()}, see {log}")
    return Undisturbed(duration_s=time.monotonic() - start_s, parts=outcome(places.out))


def run_trial(
    number: int, seed: int, names: Sequence[str], expected: Undisturbed, places: Places
) -> Trial:
    """Disturb a subject once at a random moment, then start it until it ends by itself."""
    subject, draw = names[number % len(names)], random.Random(f"{seed} {number}")
    kind, share = draw.choice(list(KINDS)), draw.random()
    start_anew(subject, places)
    begin_s = time.monotonic()
    log = places.out.with_suffix(".log")
    commands = commands_of(subject, places)
    with running(commands, log) as run:
        in_time = not run.wait(share * expected.duration_s)
        if in_time:
            KINDS[kind](run, draw)
        ended = run.wait(expected.limit_s)
        statuses = [run.results()] if ended else []
        problem = "" if ended else "hangs after it"
        asked = "SIGTERM" in kind and "Traceback" in run.printed()
        if not problem and any(statuses[0]):
            problem = start_again(commands, places, expected, statuses)
        elif not problem:
            run.wait_for_orphans(5)
    if not problem:
        problem = differences(expected.parts, outcome(places.out))
    return Trial(
        number=number,
        seed=seed,
        subject=subject,
        kind=kind,
        share=round(share, 3),
        in_time=in_time,
        statuses=statuses,
        problem=problem,
        traceback=asked,
        wall_s=round(time.monotonic() - begin_s, 1),
    )


def start_again(
    commands: Commands, places: Places, expected: Undisturbed, statuses: list[list[int]]
) -> str:
    """Start the commands until they succeed; return why they do not, else nothing.

    Processes of the start before may still run. The new start may wait for them or say that they
    work; in the latter case they get time to end.
    statuses: gets the exit statuses of each start.
    """
    for attempt in range(1, MAX_STARTS + 1):
        log = places.out.with_suffix(f".again{attempt}.log")
        log.unlink(missing_ok=True)
        with running(commands, log) as again:
            if not again.wait(expected.limit_s):
                return f"start {attempt + 1} hangs"
            statuses.append(again.results())
            if not any(again.results()):
                again.wait_for_orphans(5)
                return ""
            if not any(words in again.printed() for words in BUSY):
                return f"start {attempt + 1} ends with {again.results()}: {again.last_line()}"
            if again.wait_for_orphans(ORPHANS_S):
                return f"processes outlive the command by {ORPHANS_S:.0f} s"
    return f"not finished after {MAX_STARTS} further starts"


def commands_of(subject: str, places: Places) -> Commands:
    """Return the commands of a subject in these folders."""
    return tuple(places.words(words) for words in SUBJECTS[subject].commands)


def start_anew(subject: str, places: Places) -> None:
    """Empty the trial's folder and prepare it."""
    shutil.rmtree(places.out, ignore_errors=True)
    for log in places.out.parent.glob(f"{places.out.name}*.log"):
        log.unlink()
    places.out.mkdir(parents=True, exist_ok=True)  # a mount point stays
    SUBJECTS[subject].prepare(places)
