"""One trial: commands are started, damaged, and started again until they end by themselves.

Survived: a command that fails says why, and the same command on a sound machine ends with the
undisturbed result to the bit. A damaged file may be refused by name, and is then deleted. Three
changes of data cannot be noticed and are not tried: images replaced while a command runs and put
back while it is dead; others of the same size between two commands; others whose times are set
back.
"""

import random
import re
import shutil
import time
from dataclasses import dataclass
from typing import NamedTuple

from tests.campaign.kinds import FAULTS, KILLS, Damaged, Kind
from tests.campaign.outcome import CACHE, differences, outcome
from tests.campaign.processes import Commands, Running, running
from tests.campaign.subjects import SUBJECTS, Places, prepare

MAX_STARTS = 4
"""Starts after the damaged one; a second one is needed where a process outlives the first."""
BUSY = ("in use by another run", "another process works on this cell")
"""Parts of the messages of a command whose folder another process has locked."""
ORPHANS_S = 120.0
"""Time that processes may outlive their command until they have saved."""
LAST_LINES = 4
"""Number of last lines of a failed command that must say why."""


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


class Trial(NamedTuple):
    """The outcome of one trial, a line of the log."""

    name: str
    """Seed, kind or number: what distinguishes it from the other trials of a campaign."""
    subject: str
    kind: str
    in_time: bool
    """True if the command still ran at the moment of the damage; else nothing was damaged."""
    statuses: list[list[int]]
    """Exit statuses of each start."""
    problem: str
    """Explanation of what was not survived; empty if all was."""
    wall_s: float


def run_undisturbed(subject: str, places: Places) -> Undisturbed:
    """Run a subject to its end and return its result; RuntimeError if it fails."""
    start_anew(subject, places)
    start_s = time.monotonic()
    run = Running(places.out.with_suffix(".log"))
    with running(commands_of(subject, places), run):
        run.wait(600)
        run.wait_for_orphans(5)
    if run.results() != [0] * len(run.leaders):
        raise RuntimeError(f"{subject} fails undisturbed: {run.results()}, see {run.log}")
    return Undisturbed(duration_s=time.monotonic() - start_s, parts=outcome(places.out))


def run_trial(name: str, subject: str, kind: str, expected: Undisturbed, places: Places) -> Trial:
    """Damage a subject once at a random moment, then start it until it ends by itself."""
    what, draw, begin_s = {**KILLS, **FAULTS}[kind], random.Random(name), time.monotonic()
    start_anew(subject, places)
    commands = commands_of(subject, places, what.fault) * what.copies
    run = Running(places.out.with_suffix(".log"))
    at = Damaged(subject=subject, places=places, run=run, draw=draw)
    with running(commands, run):
        in_time = _damage(what, at, draw.random() * expected.duration_s)
        ended = run.wait(what.copies * expected.limit_s)
        run.wait_for_orphans(5)
        statuses = [run.results()] if ended else []
        problem = wrong_end(run, what, asked="SIGTERM" in kind) if ended else "hangs"
    if what.repair is not None and ended:
        what.repair(at)
    if not problem:
        problem = _recover(at, expected, statuses)
    wall_s = round(time.monotonic() - begin_s, 1)
    return Trial(name, subject, kind, in_time, statuses, problem, wall_s)


def _damage(what: Kind, at: Damaged, moment_s: float) -> bool:
    """Do the damage at its moment; return whether the commands still ran."""
    if what.damage is None:
        return True
    if at.run.wait(moment_s):
        return False
    while not what.damage(at):
        if at.run.wait(0.0):
            return False
    return True


def wrong_end(run: Running, what: Kind, *, asked: bool) -> str:
    """Return what is wrong with how damaged commands have ended; empty if nothing is.

    asked: they were asked to stop, after which no traceback may be printed.
    """
    if asked and "Traceback" in run.printed():
        return "prints a traceback"
    for text in run.printed_by_failed():
        lines = text.splitlines()
        # a run over many cells tells each failure when it happens, and ends with the tables
        told = [line for line in lines if "failed:" in line] + lines[-LAST_LINES:]
        if not re.search(what.reason, "\n".join(told)):
            return f"{run.results()} without the reason: {run.last_line()}"
    return ""


def _recover(at: Damaged, expected: Undisturbed, statuses: list[list[int]]) -> str:
    """Start the commands on a sound machine if they need it; return what is wrong, or nothing."""

    def again() -> str:
        problem = start_again(commands_of(at.subject, at.places), at.places, expected, statuses)
        return problem or differences(expected.parts, outcome(at.out))

    # a result of other data is right until they are put back: its record names the data
    same = not any(statuses[0]) and not differences(expected.parts, outcome(at.out))
    problem = "" if same else again()
    for file in at.spoiled:
        if "ends with" in problem and file.name in problem:
            file.unlink()  # as the refusal says
            problem = again()
        if "ends with" in problem and str(file.parent) in problem:
            shutil.rmtree(file.parent)  # the refusal names the folder
            problem = again()
        if problem and file.relative_to(at.out).as_posix().startswith(CACHE):
            # a finished record is not computed again, so nothing has read the damaged entry yet
            shutil.rmtree(at.out / "results")
            problem = again()
    return problem


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
        with running(commands, Running(log)) as run:
            if not run.wait(expected.limit_s):
                return f"start {attempt + 1} hangs"
            statuses.append(run.results())
            if not any(run.results()):
                run.wait_for_orphans(5)
                return ""
            if not any(words in run.printed() for words in BUSY):
                return f"start {attempt + 1} ends with {run.results()}: {run.last_line()}"
            if run.wait_for_orphans(ORPHANS_S):
                return f"processes outlive the command by {ORPHANS_S:.0f} s"
    return f"not finished after {MAX_STARTS} further starts"


def commands_of(subject: str, places: Places, fault: str = "") -> Commands:
    """Return the commands of a subject in these folders; fault: one of `faulty.py` around each."""
    around = ("tests.campaign.faulty", fault) if fault else ()
    return tuple((*around, *places.words(words)) for words in SUBJECTS[subject])


def start_anew(subject: str, places: Places) -> None:
    """Empty the trial's folder and prepare it."""
    shutil.rmtree(places.out, ignore_errors=True)
    for log in places.out.parent.glob(f"{places.out.name}*.log"):
        log.unlink()
    places.out.mkdir(parents=True)
    prepare(subject, places)
