"""Run a command in a job, signal it before the time limit, requeue it.

This is needed for three reasons. On some clusters (proctrack/cgroup), the signal reaches only the
process that Slurm started. submitit ignores SIGTERM. Slurm does not requeue a job that it killed at
its time limit, so here a command that does not exit in time is killed a moment earlier. After a job
with a nonzero exit status, the batch script calls python -m slurm.requeue FOLDER STATUS, which
decides whether the job is requeued.
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
"""Exit status of a command that saved and can resume (EX_TEMPFAIL). pretrain/running/stop.py has
the same number, since the packages do not import each other."""
MAX_STARTS = 100
"""Maximum number of starts of one job."""
MAX_KILLS = 3
"""Maximum number of kills without saving after which a job is requeued."""
LATE_S = 30.0
"""Seconds before the time limit at which a running command is killed, or a tenth of the limit if
that is less."""
PATIENCE_S, PAUSE_S = 60.0, 5.0
"""Seconds for which failing calls are repeated, and the pause between calls."""
LIVE_STATES = {"RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"}
"""States of a job that has not ended (COMPLETING has)."""
PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>
SIGNALS = (signal.SIGUSR2, signal.SIGTERM)
PRECEDENCE_S = 10.0
"""Seconds by which a failing process delays its exit, so that a killed process that caused the
failure stores its status first."""
NAMES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
PORTS = (20_000, 32_000)
"""Range of ports, below the range that Linux uses for outgoing connections."""


@dataclass(frozen=True)
class Command:
    """A program and its arguments, as a callable for submitit."""

    words: tuple[str, ...]
    of_python: bool = False
    """The words are arguments for the Python that runs the job."""

    def __call__(self) -> None:
        """Run the command; exit with its status unless it is 0."""
        from submitit import JobEnvironment

        job: Any = JobEnvironment()
        requests = _Requests()
        for number in SIGNALS:
            signal.signal(number, requests.note)  # replaces submitit's handlers
        limit_s = max(0.0, float(os.environ["SLURM_JOB_END_TIME"]) - time.time())
        args = (sys.executable, *self.words) if self.of_python else self.words
        status = requests.run(args, environment(job, os.environ), limit_s)
        if status == 0:
            return
        if requests.late:
            print("killed, since it did not exit before the time limit", flush=True)
        elif requests.signal_name:
            status = EXIT_RESUMABLE  # even if the signal killed the command
        if status == EXIT_RESUMABLE and job.global_rank:
            time.sleep(3600)  # rank 0 saves; when it exits, srun ends this process
        if status > 0 and status != EXIT_RESUMABLE and job.num_tasks > 1:
            time.sleep(PRECEDENCE_S)
        status = status if status > 0 else 128 - status
        first_status(job.paths.folder, job.job_id, status)
        sys.exit(status)

    def checkpoint(self) -> Any:
        """Return the submission to requeue if submitit's handler gets the signal."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def killing_signal(status: int) -> str:
    """Return the name of the signal that ended a process, or "".

    status: exit status as in Python (negative) or in a shell (above 128).
    """
    names = {number.value: number.name for number in signal.Signals}
    return names.get(-status if status < 0 else status - 128, "")


class _Requests:
    """Signals that request the end of the job, forwarded to its command."""

    def __init__(self) -> None:
        self.signal_name = ""
        self.late = False
        """True if the command was killed at the time limit."""
        self.command: subprocess.Popen[bytes] | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: remember it and send SIGTERM to the command."""
        self.signal_name = signal.Signals(number).name
        if self.command is not None:
            self.command.send_signal(signal.SIGTERM)

    def run(self, args: tuple[str, ...], settings: dict[str, str], limit_s: float) -> int:
        """Run a command; return its exit status as in Python.

        It gets SIGTERM before the time limit unless it already got one, and is killed if it does
        not exit.
        """
        end = time.monotonic() + limit_s
        with subprocess.Popen(args, env=settings, preexec_fn=_end_with_parent) as self.command:
            if self.signal_name:  # the signal arrived before the command started
                self.command.send_signal(signal.SIGTERM)
            for delay_s, number in (
                (min(GIVE_UP_DELAY_S, limit_s / 3), signal.SIGTERM),
                (min(LATE_S, limit_s / 10), signal.SIGKILL),
            ):
                try:
                    return self.command.wait(max(0.0, end - delay_s - time.monotonic()))
                except subprocess.TimeoutExpired:
                    self.late = number == signal.SIGKILL
                    if self.late or not self.signal_name:
                        self.signal_name = self.signal_name or "the time limit"
                        self.command.send_signal(number)
            return self.command.wait()


def _end_with_parent() -> None:
    """Let the kernel stop the command if its parent is killed.

    Otherwise, the command would run twice after a requeue.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def ask_repeatedly(*args: str) -> str:
    """Return the output of a Slurm program; repeat failing calls."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask(*args)
        except ClusterError:
            if time.monotonic() + PAUSE_S > until:
                raise
        time.sleep(PAUSE_S)


def environment(job: Any, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of this process, without the variables of another launcher.

    job: submitit's JobEnvironment of a running job.
    LOCAL_RANK is the index of the process's GPU among its visible GPUs: 0 if the cluster shows each
    process only one GPU.
    """
    variables = {name: value for name, value in inherited.items() if name not in NAMES}
    if job.num_tasks == 1:
        return variables
    # each start uses another port, since the previous one may still be in use
    start = inherited.get("SLURM_RESTART_COUNT", "0")
    visible = [name for name in inherited.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return variables | {
        "MASTER_ADDR": job.hostnames[0],
        "MASTER_PORT": str(random.Random(f"{job.job_id} {start}").randint(*PORTS)),
        "RANK": str(job.global_rank),
        "WORLD_SIZE": str(job.num_tasks),
        "LOCAL_RANK": "0" if len(visible) == 1 else str(job.local_rank),
        "LOCAL_WORLD_SIZE": str(job.num_tasks // job.num_nodes),
    }


def first_status(folder: Path, job_id: str, status: int) -> int:
    """Return the exit status of the first failed process of this start.

    A file stores it, since srun ends the other processes and returns any status. If nothing is
    stored yet, the given status is stored and returned.
    """
    file = _status_file(folder, job_id, _start())
    try:
        with file.open("x") as new:
            new.write(str(status))
    except FileExistsError:
        return int(file.read_text() or status)
    return status


def start_again(folder: Path, job_id: str, status: int) -> str:
    """Requeue a failed job if that may help; otherwise, return the reason.

    Requeueing may help if the command saved, if it was killed, or if the job has several nodes:
    then another node may have died, which Slurm notices minutes later. A job that is killed in four
    starts without saving in between is not requeued. The result is empty if the job was requeued,
    or if the command itself failed and printed its error.
    """
    start, status = _start(), first_status(folder, job_id, status)
    killer = killing_signal(status)
    ending = f"killed by {killer}" if killer else f"exit status {status}"
    if status != EXIT_RESUMABLE:
        if not killer and int(os.environ.get("SLURM_JOB_NUM_NODES", "1")) == 1:
            return ""
        files = (_status_file(folder, job_id, number) for number in range(start, -1, -1))
        # if a node dies, Slurm requeues the job itself, and that start has no status
        statuses = [file.read_text() for file in files if file.exists()]
        kills = len(statuses)
        if str(EXIT_RESUMABLE) in statuses:
            kills = statuses.index(str(EXIT_RESUMABLE))
        if kills > MAX_KILLS:
            advice = "; perhaps it needs more memory" if killer else ""
            return f"{ending} in {kills} starts{advice}"
    if start + 1 >= MAX_STARTS:
        return f"{ending}; still not finished after {start + 1} starts"
    try:
        # check the state first: the job may be cancelled, or Slurm may have requeued it
        state = ask_repeatedly("squeue", "--noheader", "--format=%T", f"--jobs={job_id}").strip()
        if state not in LIVE_STATES | WAITING:
            return f"{ending}; the job was cancelled or ended by Slurm (state {state or 'unknown'})"
        message = f"start {start + 1} ended: {ending}; the job is queued again"
        if state not in WAITING:
            print(message, flush=True)  # before the requeue, which ends this process
            ask_repeatedly("scontrol", "requeue", job_id)
    except ClusterError as error:
        return f"{ending}; {error}"
    return ""


def _start() -> int:
    """Return the number of previous starts of this job."""
    return int(os.environ.get("SLURM_RESTART_COUNT", "0"))


def _status_file(folder: Path, job_id: str, start: int) -> Path:
    return folder / f"{job_id}.status-{start}"


def this_job() -> str:
    """Return the id of this process's job, in submitit's format."""
    if "SLURM_ARRAY_TASK_ID" in os.environ:
        return f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return os.environ["SLURM_JOB_ID"]


if __name__ == "__main__":
    if reason := start_again(Path(sys.argv[1]), this_job(), int(sys.argv[2])):
        print(f"not queued again: {reason}", file=sys.stderr, flush=True)
