"""A command as a job: it gets a signal to save before the job must end, and is started again.

This fills gaps of Slurm and submitit: the signal reaches the command only on some clusters (with
proctrack/cgroup only the process that Slurm started), submitit ignores SIGTERM, and only the job's
first process requeues it. Slurm does not requeue a job that it killed at its time limit, so a
command that does not exit in time is killed a moment earlier.
The batch script calls python -m slurm.requeue FOLDER STATUS after a job that was killed.
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
from typing import Any, NoReturn

from slurm.cluster import ClusterError, ask
from slurm.resources import GIVE_UP_DELAY_S
from slurm.state import WAITING, saved_error

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
"""Seconds by which a process delays its failure: the cause may be the death of another process,
whose error should be the first."""
NAMES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
PORTS = (20_000, 32_000)
"""Range of ports, below those that Linux uses for outgoing connections."""


class CommandError(RuntimeError):
    """A failure of the command that a new start would not mend."""


@dataclass(frozen=True)
class Command:
    """A program and its arguments, the callable that submitit runs."""

    words: tuple[str, ...]

    def __call__(self) -> None:
        """Run the command; CommandError if it fails, SystemExit if the job will start again."""
        from submitit import JobEnvironment

        job: Any = JobEnvironment()
        job.paths.result_pickle.unlink(missing_ok=True)  # of an earlier start
        requests = _Requests()
        for number in SIGNALS:
            signal.signal(number, requests.note)  # in place of submitit's handlers
        limit_s = max(0.0, float(os.environ["SLURM_JOB_END_TIME"]) - time.time())
        status = requests.run(self.words, environment(job, os.environ), limit_s)
        if status == 0:
            return
        if status == EXIT_RESUMABLE:
            for file in job.paths.folder.glob(f"{job.job_id}.killed-*"):
                file.unlink(missing_ok=True)  # it has saved since
        elif requests.late or not requests.signal_name:
            _restart_or_fail(job, status, requests.late)
        if job.global_rank:
            time.sleep(3600)  # the first process requeues the job, and this one is killed
        asked = f"asked to stop by {requests.signal_name}"
        start_again(job, asked if requests.signal_name else "it has saved")

    def checkpoint(self) -> Any:
        """Return what submitit starts again if its own handler gets the signal first."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _restart_or_fail(job: Any, status: int, late: bool) -> NoReturn:
    """Start the job again after a failure that may not recur; otherwise raise a CommandError."""
    killer = killing_signal(status)
    why = f"killed by {killer}" if killer else f"exit status {status}"
    if late:
        why = "did not leave before the time limit"
    starts_all_again = job.global_rank == 0 and (late or job.num_nodes > 1)
    if job.num_tasks > 1 and not starts_all_again and (late or not killer):
        time.sleep(PRECEDENCE_S)
    # on several nodes a failure may be the death of another node, which Slurm sees minutes later
    if not (late or killer or job.num_nodes > 1):
        raise CommandError(why)
    if record_kill(job.paths.folder, job.job_id) <= MAX_KILLS:
        start_again(job, why)
    advice = "; is memory too small?" if killer and not late else ""
    raise CommandError(f"{why} in {MAX_KILLS + 1} starts{advice}")


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


def start_again(job: Any, why: str) -> NoReturn:
    """Put the job back into the queue and exit."""
    starts = int(os.environ.get("SLURM_RESTART_COUNT", "0")) + 1
    if starts >= MAX_STARTS:
        raise CommandError(f"{why}; still not finished after {starts} starts")
    if saved_error(job.paths.folder, job.job_id):  # srun then ends the others by a SIGTERM
        raise CommandError(f"{why}; another process of the job has failed")
    try:
        requeue_job(job.job_id)
    except ClusterError as error:
        raise CommandError(f"{why}; {error}") from error
    print(f"start {starts} has ended: {why}; the job waits to be started again", flush=True)
    sys.exit(EXIT_RESUMABLE)


def requeue_job(job_id: str) -> None:
    """Put the job back into the queue; ClusterError if it was ended from outside."""
    # first a look: Slurm would requeue a cancelled job too, or another process has done it
    if not is_waiting(job_id):
        ask_repeatedly("scontrol", "requeue", job_id)


def is_waiting(job_id: str) -> bool:
    """Return whether the job already waits for its next start; ClusterError if it was ended."""
    word = ask_repeatedly("squeue", "--noheader", "--format=%T", f"--jobs={job_id}").strip()
    if word not in LIVE_STATES | WAITING:
        raise ClusterError(f"the job was ended from outside (state {word or 'unknown'})")
    return word in WAITING


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


def record_kill(folder: Path, job_id: str) -> int:
    """Record a kill; return in how many starts the job was killed since it last saved."""
    # all processes of a start touch the same file, so that it counts once
    start = os.environ.get("SLURM_RESTART_COUNT", "0")
    (folder / f"{job_id}.killed-{start}").touch()
    return len(list(folder.glob(f"{job_id}.killed-*")))


def restart_after_kill(folder: Path, status: int) -> bool:
    """Start a job again that was killed before it could save a result; return whether it was."""
    job_id = os.environ["SLURM_JOB_ID"]
    if "SLURM_ARRAY_TASK_ID" in os.environ:
        job_id = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    # while a node is dead but not yet known as such, srun fails before any process starts
    several = int(os.environ.get("SLURM_JOB_NUM_NODES", "1")) > 1 and status != EXIT_RESUMABLE
    if not (killing_signal(status) or several) or any(folder.glob(f"{job_id}_*_result.pkl")):
        return False
    try:
        if is_waiting(job_id) or record_kill(folder, job_id) > MAX_KILLS:
            return False
        requeue_job(job_id)
    except ClusterError as error:
        print(f"not started again: {error}", file=sys.stderr)
        return False
    return True


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


if __name__ == "__main__":
    restart_after_kill(Path(sys.argv[1]), int(sys.argv[2]))
