"""One trial: commands are started, killed, and started again until they end by themselves.

Survived: the same command ends with the undisturbed result to the bit.
"""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tests.campaign.outcome import differences, outcome
from tests.campaign.processes import Commands, Running, descendants, running, send
from tests.campaign.subjects import SUBJECTS, Places, prepare

MAX_STARTS = 4
"""Starts after the damaged one; a second one is needed where a process outlives the first."""
BUSY = ("another process works here", "another process works on this cell")
"""Parts of the messages of a command whose folder another process has locked."""
ORPHANS_S = 120.0
"""Time that processes may outlive their command until they have saved."""
PAUSES_S = (0.2, 3.0)
"""Shortest and longest time for which a process is stopped before it continues."""


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


def kill_every_process(run: Running, draw: random.Random) -> None:
    """Kill all at once, as a machine that loses power or a scheduler at a limit does."""
    run.kill_all()


def kill_the_group(run: Running, draw: random.Random) -> None:
    """Kill a command and those of its processes that share its group."""
    os.killpg(draw.choice(run.leaders), signal.SIGKILL)


def kill_one_process(run: Running, draw: random.Random) -> None:
    """Kill one of all processes, as the kernel does where memory runs out."""
    pids = descendants(os.getpid())
    send(signal.SIGKILL, [draw.choice(pids)] if pids else [])


def ask_the_command(run: Running, draw: random.Random) -> None:
    """Ask one command to stop."""
    send(signal.SIGTERM, [draw.choice(run.leaders)])


def ask_every_process(run: Running, draw: random.Random) -> None:
    """Ask all processes to stop, as a scheduler before its limit does."""
    send(signal.SIGTERM, descendants(os.getpid()))


def stop_and_continue(run: Running, draw: random.Random) -> None:
    """Stop one process or all of them for a while, as a suspended job is."""
    pids = descendants(os.getpid())
    if pids and draw.random() < 0.5:
        pids = [draw.choice(pids)]
    send(signal.SIGSTOP, pids)
    time.sleep(draw.uniform(*PAUSES_S))
    send(signal.SIGCONT, pids)


KILLS: Mapping[str, Callable[[Running, random.Random], None]] = {
    "kill -9 of every process": kill_every_process,
    "kill -9 of the process group": kill_the_group,
    "kill -9 of one process": kill_one_process,
    "SIGTERM to the command": ask_the_command,
    "SIGTERM to every process": ask_every_process,
    "SIGSTOP, then SIGCONT": stop_and_continue,
}


def run_trial(name: str, subject: str, expected: Undisturbed, places: Places) -> Trial:
    """Kill a subject once at a random moment, then start it until it ends by itself."""
    draw, begin_s = random.Random(name), time.monotonic()
    kind = draw.choice(list(KILLS))
    start_anew(subject, places)
    commands, statuses = commands_of(subject, places), []
    with running(commands, Running(places.out.with_suffix(".log"))) as run:
        in_time = not run.wait(draw.random() * expected.duration_s)
        if in_time:
            KILLS[kind](run, draw)
        problem = ""
        if not run.wait(expected.limit_s):
            problem = "hangs"
        elif "SIGTERM" in kind and "Traceback" in run.printed():
            problem = "prints a traceback"
        else:
            run.wait_for_orphans(5)
            statuses.append(run.results())
    if not problem and (any(statuses[0]) or differences(expected.parts, outcome(places.out))):
        problem = start_again(commands, places, expected, statuses)
        problem = problem or differences(expected.parts, outcome(places.out))
    wall_s = round(time.monotonic() - begin_s, 1)
    return Trial(name, subject, kind, in_time, statuses, problem, wall_s)


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


def commands_of(subject: str, places: Places) -> Commands:
    """Return the commands of a subject in these folders."""
    return tuple(places.words(words) for words in SUBJECTS[subject])


def start_anew(subject: str, places: Places) -> None:
    """Empty the trial's folder and prepare it."""
    shutil.rmtree(places.out, ignore_errors=True)
    for log in places.out.parent.glob(f"{places.out.name}*.log"):
        log.unlink()
    places.out.mkdir(parents=True)
    prepare(subject, places)
