"""The kinds of kills and stops that a command must survive."""

import os
import random
import signal
import time
from collections.abc import Callable, Mapping

from tests.campaign.processes import Running, descendants, send

PAUSES_S = (0.2, 3.0)
"""Shortest and longest time for which a process is stopped before it continues."""

Disturb = Callable[[Running, random.Random], None]


def kill_every_process(run: Running, draw: random.Random) -> None:
    """Kill all at once, as a machine that loses power or a scheduler at a limit does."""
    run.kill_all()


def kill_the_group(run: Running, draw: random.Random) -> None:
    """Kill a command and those of its processes that share its group."""
    os.killpg(draw.choice(run.leaders), signal.SIGKILL)


def kill_one_process(run: Running, draw: random.Random) -> None:
    """Kill one of all processes, as the kernel does where memory runs out."""
    pids = descendants(os.getpid())
    if pids:
        send(signal.SIGKILL, [draw.choice(pids)])


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


KINDS: Mapping[str, Disturb] = {
    "kill -9 of every process": kill_every_process,
    "kill -9 of the process group": kill_the_group,
    "kill -9 of one process": kill_one_process,
    "SIGTERM to the command": ask_the_command,
    "SIGTERM to every process": ask_every_process,
    "SIGSTOP, then SIGCONT": stop_and_continue,
}
