"""One trial: commands are started, killed, and started again until they end.

Survived: the same command ends with a result that is bitwise equal to the undisturbed one.
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
from tests.campaign.processes import Commands, Running, descendants, run_to_end, running, send
from tests.campaign.subjects import SUBJECTS, TrialFolders, prepare

MAX_STARTS = 4
"""Starts after the damaged one.

A second one is needed if a process outlives the first.
"""
BUSY = ("another process works here", "another process works on this cell")
"""Messages of a command that finds its folder locked by another process."""
ORPHANS_S = 120.0
"""Time that processes may outlive their command until they have saved."""


@dataclass(frozen=True, kw_only=True)
class Undisturbed:
    """The undisturbed result of a subject."""

    duration_s: float
    digests: dict[str, str]
    """Digest of each file of the result."""

    @property
    def limit_s(self) -> float:
        """Time limit of a start.

        A busy machine is slower than the measured run.
        """
        return 60.0 + 20.0 * self.duration_s


class Trial(NamedTuple):
    """The outcome of one trial, a line of the log."""

    name: str
    """Seed, kind or number, unique within a campaign."""
    subject: str
    kind: str
    in_time: bool
    """True if the command still ran at the moment of the damage.

    Otherwise nothing was damaged.
    """
    statuses: list[list[int]]
    """Exit statuses of each start."""
    problem: str
    """Why the trial failed; empty if it was survived."""
    wall_s: float


def run_undisturbed(subject: str, folders: TrialFolders) -> Undisturbed:
    """Run a subject to its end and return its result.

    Raises a RuntimeError if it fails.
    """
    start_anew(subject, folders)
    start_s = time.monotonic()
    run_to_end(commands_of(subject, folders), folders.out.with_suffix(".log"))
    return Undisturbed(duration_s=time.monotonic() - start_s, digests=outcome(folders.out))


def kill_one_process(_: Running, draw: random.Random) -> None:
    """Kill one of all processes, like the kernel's out-of-memory killer."""
    pids = descendants(os.getpid())
    send(signal.SIGKILL, [draw.choice(pids)] if pids else [])


KILLS: Mapping[str, Callable[[Running, random.Random], None]] = {
    "kill -9 of every process": lambda run, _: run.kill_all(),
    "kill -9 of the process group": lambda run, draw: os.killpg(
        draw.choice(run.leaders), signal.SIGKILL
    ),
    "kill -9 of one process": kill_one_process,
    "SIGTERM to the command": lambda run, draw: send(signal.SIGTERM, [draw.choice(run.leaders)]),
    "SIGTERM to every process": lambda *_: send(signal.SIGTERM, descendants(os.getpid())),
}
"""Kills by power loss, session end, out of memory, user and scheduler."""


def run_trial(name: str, subject: str, expected: Undisturbed, folders: TrialFolders) -> Trial:
    """Kill a subject once at a random moment, then restart until success."""
    draw, begin_s = random.Random(name), time.monotonic()
    kind = draw.choice(list(KILLS))
    start_anew(subject, folders)
    commands, statuses = commands_of(subject, folders), []
    with running(commands, folders.out.with_suffix(".log")) as run:
        in_time = not run.wait(draw.random() * expected.duration_s)
        if in_time:
            KILLS[kind](run, draw)
        problem = ""
        if not run.wait(expected.limit_s):
            problem = "hangs"
        elif "SIGTERM" in kind and has_own_traceback(run.printed()):
            problem = "prints a traceback"
        else:
            run.wait_for_orphans(5)
            statuses.append(run.results())
    if not problem and (any(statuses[0]) or differences(expected.digests, outcome(folders.out))):
        problem = start_again(commands, folders, expected, statuses)
        problem = problem or differences(expected.digests, outcome(folders.out))
    wall_s = round(time.monotonic() - begin_s, 1)
    return Trial(name, subject, kind, in_time, statuses, problem, wall_s)


def has_own_traceback(printed: str) -> bool:
    """Return whether a stopped command printed a traceback (torchrun's excepted)."""
    _, *tracebacks = printed.split("Traceback")
    return any("SignalException" not in text for text in tracebacks)


def start_again(
    commands: Commands, folders: TrialFolders, expected: Undisturbed, statuses: list[list[int]]
) -> str:
    """Start the commands until they succeed.

    Return why they fail, or "" if they succeed.

    Processes of the previous start may still run. The new start may wait for them or report them as
    running; in the latter case they get time to end.

    statuses: gets the exit statuses of each start.
    """
    for attempt in range(1, MAX_STARTS + 1):
        log = folders.out.with_suffix(f".again{attempt}.log")
        log.unlink(missing_ok=True)
        with running(commands, log) as run:
            if not run.wait(expected.limit_s):
                return f"start {attempt + 1} hangs"
            statuses.append(run.results())
            if not any(run.results()):
                run.wait_for_orphans(5)
                return ""
            if not any(args in run.printed() for args in BUSY):
                return f"start {attempt + 1} ends with {run.results()}: {run.printed()[-200:]}"
            if run.wait_for_orphans(ORPHANS_S):
                return f"processes outlive the command by {ORPHANS_S:.0f} s"
    return f"not finished after {MAX_STARTS} further starts"


def commands_of(subject: str, folders: TrialFolders) -> Commands:
    """Return the commands of a subject in these folders."""
    return tuple(folders.fill_in(args) for args in SUBJECTS[subject])


def start_anew(subject: str, folders: TrialFolders) -> None:
    """Empty the trial's folder and prepare it."""
    shutil.rmtree(folders.out, ignore_errors=True)
    for log in folders.out.parent.glob(f"{folders.out.name}*.log"):
        log.unlink()
    folders.out.mkdir(parents=True)
    prepare(subject, folders)
