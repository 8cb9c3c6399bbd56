"""A command as a job: it gets a signal to save before the job must end, and is started again.

This fills gaps of Slurm and submitit: the signal reaches the command only on some clusters (with
proctrack/cgroup only the process that Slurm started), submitit ignores SIGTERM, and Slurm does not
requeue a job that it killed at its time limit, so a command that does not exit in time is killed a
moment earlier. After a job that did not end with 0, the batch script calls python -m slurm.requeue
FOLDER STATUS, which alone decides whether it starts again.
"""

import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from slurm.cluster import ClusterError, ask
from slurm.resources import GIVE_UP_DELAY_S
from slurm.state import WAITING

EXIT_RESUMABLE = 75
"""Exit status of a command that has saved and can resume: EX_TEMPFAIL. The rooms import nothing of
each other here: pretrain/running/stop.py has the same number."""
MAX_STARTS = 100
"""Starts of one job at most, whatever the reasons."""
MAX_KILLS = 3
"""Kills after which a job that saves nothing is not started again."""
LATE_S = 30.0
"""Seconds before the time limit at which a running command is killed; a tenth of the time if
that is less."""
PATIENCE_S, PAUSE_S = 60.0, 5.0
"""Seconds for which a failing controller is asked again, and the pause between."""
LIVE_STATES = {"RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"}
"""States of a job that nobody has ended; a cancelled one is COMPLETING."""
PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>
SIGNALS = (signal.SIGUSR2, signal.SIGTERM)
PRECEDENCE_S = 10.0
"""Seconds by which one of several processes delays its failure: the cause may be the death of
another process, whose status should be the first."""
NAMES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
PORTS = (20_000, 32_000)
"""Range of ports, below those that Linux uses for outgoing connections."""


@dataclass(frozen=True)
class Command:
    """A program and its arguments, the callable that submitit runs."""

    words: tuple[str, ...]
    of_python: bool = False
    """The words are arguments of the Python that runs the job."""

    def __call__(self) -> None:
        """Run the command; exit with its status unless that is 0."""
        from submitit import JobEnvironment

        job: Any = JobEnvironment()
        requests = _Requests()
        for number in SIGNALS:
            signal.signal(number, requests.note)  # in place of submitit's handlers
        limit_s = max(0.0, float(os.environ["SLURM_JOB_END_TIME"]) - time.time())
        words = (sys.executable, *self.words) if self.of_python else self.words
        status = requests.run(words, environment(job, os.environ), limit_s)
        if status == 0:
            return
        if requests.late:
            print("killed, since it did not exit before the time limit", flush=True)
        elif requests.signal_name:
            status = EXIT_RESUMABLE  # also of a command that the signal has killed
        if status == EXIT_RESUMABLE and job.global_rank:
            time.sleep(3600)  # the first process saves; when it exits, srun ends this one
        if status > 0 and status != EXIT_RESUMABLE and job.num_tasks > 1:
            time.sleep(PRECEDENCE_S)
        status = status if status > 0 else 128 - status
        first_status(job.paths.folder, job.job_id, status)
        sys.exit(status)

    def checkpoint(self) -> Any:
        """Return what submitit starts again if its own handler gets the signal first."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def killing_signal(status: int) -> str:
    """Return the signal that ended a process, from Python's or a shell's status; empty if none."""
    names = {known.value: known.name for known in signal.Signals}
    return names.get(-status if status < 0 else status - 128, "")


class _Requests:
    """Signals that ask the job to end, which are passed on to its command."""

    def __init__(self) -> None:
        self.signal_name = ""
        self.late = False
        """True if the command was killed because it did not exit in time."""
        self.command: subprocess.Popen[bytes] | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: remember it and send SIGTERM to the command."""
        self.signal_name = signal.Signals(number).name
        if self.command is not None:
            self.command.send_signal(signal.SIGTERM)

    def run(self, words: tuple[str, ...], settings: dict[str, str], limit_s: float) -> int:
        """Run a command; return its exit status, negative if a signal has killed it.

        It gets a SIGTERM before the limit, if none came before, and is killed if it does not exit.
        """
        end = time.monotonic() + limit_s
        with subprocess.Popen(words, env=settings, preexec_fn=_end_with_parent) as self.command:
            if self.signal_name:  # the signal came before the command had started
                self.command.send_signal(signal.SIGTERM)
            for before_s, number in (
                (min(GIVE_UP_DELAY_S, limit_s / 3), signal.SIGTERM),
                (min(LATE_S, limit_s / 10), signal.SIGKILL),
            ):
                try:
                    return self.command.wait(max(0.0, end - before_s - time.monotonic()))
                except subprocess.TimeoutExpired:
                    self.late = number == signal.SIGKILL
                    if self.late or not self.signal_name:
                        self.signal_name = self.signal_name or "the time limit"
                        self.command.send_signal(number)
            return self.command.wait()


def _end_with_parent() -> None:
    """Let the kernel stop the command if its parent is killed; a new start would make two of it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def ask_repeatedly(*words: str) -> str:
    """Return what one of Slurm's programs prints; repeat it for a while where it fails."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask(*words)
        except ClusterError:
            if time.monotonic() + PAUSE_S > until:
                raise
        time.sleep(PAUSE_S)


def environment(job: Any, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of this process of the job, without those of another launcher.

    job: submitit's JobEnvironment of a running job.
    LOCAL_RANK is the place of the process's GPU among those that it sees: 0 where the cluster
    shows each process only its own.
    """
    own = {name: value for name, value in inherited.items() if name not in NAMES}
    if job.num_tasks == 1:
        return own
    # another start, another port: the last one may be in use
    start = inherited.get("SLURM_RESTART_COUNT", "0")
    visible = [name for name in inherited.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return own | {
        "MASTER_ADDR": job.hostnames[0],
        "MASTER_PORT": str(random.Random(f"{job.job_id} {start}").randint(*PORTS)),
        "RANK": str(job.global_rank),
        "WORLD_SIZE": str(job.num_tasks),
        "LOCAL_RANK": "0" if len(visible) == 1 else str(job.local_rank),
        "LOCAL_WORLD_SIZE": str(job.num_tasks // job.num_nodes),
    }


def first_status(folder: Path, job_id: str, status: int) -> int:
    """Return the exit status of the process that was the first of this start to end badly.

    It is kept in a file: srun ends the other processes, and returns the status of any. If nothing
    is stored yet, it is the status given.
    """
    file = _status_file(folder, job_id, _start())
    try:
        with file.open("x") as new:
            new.write(str(status))
    except FileExistsError:
        return int(file.read_text() or status)
    return status


def start_again(folder: Path, job_id: str, status: int) -> str:
    """Put a job that ended badly back into the queue if that may help; return why not.

    It helps a command that has saved, one that was killed, and one on several nodes, whose failure
    may be the death of another node, which Slurm sees minutes later. A job that is killed in four
    starts without saving in between is given up. The result is empty if it was put back, or if the
    command itself has failed, whose messages say why.
    """
    start, status = _start(), first_status(folder, job_id, status)
    killer = killing_signal(status)
    ending = f"killed by {killer}" if killer else f"exit status {status}"
    if status != EXIT_RESUMABLE:
        if not killer and int(os.environ.get("SLURM_JOB_NUM_NODES", "1")) == 1:
            return ""
        files = (_status_file(folder, job_id, number) for number in range(start, -1, -1))
        # Slurm itself starts a job again whose node has died; there is no status of such a start
        ends = [file.read_text() for file in files if file.exists()]
        saved = ends.index(str(EXIT_RESUMABLE)) if str(EXIT_RESUMABLE) in ends else len(ends)
        if saved > MAX_KILLS:
            advice = "; is memory too small?" if killer else ""
            return f"{ending} in {saved} starts{advice}"
    if start + 1 >= MAX_STARTS:
        return f"{ending}; still not finished after {start + 1} starts"
    try:
        # first a look: Slurm would requeue a cancelled job too, or has requeued it itself
        word = ask_repeatedly("squeue", "--noheader", "--format=%T", f"--jobs={job_id}").strip()
        if word not in LIVE_STATES | WAITING:
            return f"{ending}; the job was ended from outside (state {word or 'unknown'})"
        told = f"start {start + 1} has ended: {ending}; the job waits to be started again"
        if word not in WAITING:
            print(told, flush=True)  # Slurm ends this process, too
            ask_repeatedly("scontrol", "requeue", job_id)
    except ClusterError as error:
        return f"{ending}; {error}"
    return ""


def _start() -> int:
    """Return the number of earlier starts of this job."""
    return int(os.environ.get("SLURM_RESTART_COUNT", "0"))


def _status_file(folder: Path, job_id: str, start: int) -> Path:
    return folder / f"{job_id}.status-{start}"


def this_job() -> str:
    """Return the id of this process's job, in the form of submitit."""
    if "SLURM_ARRAY_TASK_ID" in os.environ:
        return f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return os.environ["SLURM_JOB_ID"]


if __name__ == "__main__":
    if reason := start_again(Path(sys.argv[1]), this_job(), int(sys.argv[2])):
        print(f"not started again: {reason}", file=sys.stderr, flush=True)
