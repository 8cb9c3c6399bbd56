"""A command as a job: it is asked to save before the job must end, and started again afterwards.

Slurm and submitit leave gaps that are closed here. The command itself gets a signal on some
clusters only (proctrack/cgroup reaches only the process that Slurm started), SIGTERM is ignored by
submitit, and its first process alone asks to be started again. The end of a time limit is final, so
a command that does not leave in time is killed a moment earlier.
python -m slurm.requeue FOLDER STATUS is called by the batch script after a job that was killed.
"""

import ctypes
import math
import os
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
from slurm.ranks import environment
from slurm.resources import GIVE_UP_DELAY_S
from slurm.state import WAITING, left_error

TRY_AGAIN = 75
"""Exit status of a command that has saved and goes on when started again: EX_TEMPFAIL."""
MOST_STARTS = 100
"""Of one job, whatever the reasons."""
MOST_KILLS = 3
"""After which a job that saves nothing is given up: it would be killed for ever."""
LATE_S = 30.0
"""Before the time limit a command that is still there is killed; a tenth of the time if that is
less."""
PATIENCE_S, PAUSE_S = 60.0, 5.0
"""For which a controller that does not answer is asked again, and how often."""
GOES_ON = {"RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"}
"""States of a job that nobody has ended; a cancelled one is COMPLETING."""
PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>
SIGNALS = (signal.SIGUSR2, signal.SIGTERM)
PRECEDENCE_S = 10.0
"""For which a process keeps its failure to itself: another one's death may have caused it."""


class CommandError(RuntimeError):
    """The command has failed, and would fail again."""


@dataclass(frozen=True)
class Command:
    """What submitit runs: a program and its words."""

    words: tuple[str, ...]

    def __call__(self) -> None:
        """Run it here; CommandError if it fails, SystemExit if the job will start again."""
        from submitit import JobEnvironment

        job: Any = JobEnvironment()
        job.paths.result_pickle.unlink(missing_ok=True)  # of an earlier start
        requests = _Requests()
        for number in SIGNALS:
            signal.signal(number, requests.note)  # no longer heard by submitit
        status = requests.run(self.words, environment(job, os.environ), limit_s(os.environ))
        if status == 0:
            return
        if status == TRY_AGAIN or (requests.asked and not requests.late):
            why = f"asked to stop by {requests.asked}" if requests.asked else "it has saved"
            if status == TRY_AGAIN:
                forget_kills(job.paths.folder, job.job_id)
            if job.global_rank:
                time.sleep(3600)  # the first process starts all again, and this one is killed
            start_again(job, why)
        _failed(job, status, requests.late)

    def checkpoint(self) -> Any:
        """What submitit starts again when its own handler is the first to hear of the end."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _failed(job: Any, status: int, late: bool) -> NoReturn:
    """Start again after what may pass, but not for ever; CommandError after all else."""
    killer = killer_of(status)
    why = f"killed by {killer}" if killer else f"exit status {status}"
    if late:
        why = "did not leave before the time limit"
    starts_all_again = job.global_rank == 0 and (late or job.num_nodes > 1)
    if job.num_tasks > 1 and not starts_all_again and (late or not killer):
        time.sleep(PRECEDENCE_S)
    # on several nodes a failure may be the death of another node, which Slurm sees minutes later
    passes = late or bool(killer) or job.num_nodes > 1
    if not passes:
        raise CommandError(why)
    if note_kill(job.paths.folder, job.job_id) <= MOST_KILLS:
        start_again(job, why)
    advice = "; is memory too small?" if killer and not late else ""
    raise CommandError(f"{why} in {MOST_KILLS + 1} starts{advice}")


def killer_of(status: int) -> str:
    """The signal that has ended a process, by Python's status or a shell's; empty if none."""
    number = -status if status < 0 else status - 128
    return (
        signal.Signals(number).name if number in {known.value for known in signal.Signals} else ""
    )


def limit_s(settings: Mapping[str, str]) -> float:
    """Seconds until the time limit of the job; infinite where there is none."""
    end = settings.get("SLURM_JOB_END_TIME", "")
    return max(0.0, float(end) - time.time()) if end else math.inf


class _Requests:
    """Signals that ask the job to end, handed on to its command."""

    def __init__(self) -> None:
        self.asked = ""
        self.late = False
        """It had to be killed, because it did not leave."""
        self.command: subprocess.Popen[bytes] | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        """Signal handler."""
        self.asked = signal.Signals(number).name
        if self.command is not None:
            self.command.send_signal(signal.SIGTERM)

    def run(
        self, words: tuple[str, ...], settings: dict[str, str], limit_s: float = math.inf
    ) -> int:
        """Exit status of a command, negative if a signal has killed it.

        It is asked to leave before the limit, should nobody else do so, and killed if it stays.
        """
        end = time.monotonic() + limit_s
        with subprocess.Popen(words, env=settings, preexec_fn=_end_with_parent) as self.command:
            if self.asked:  # a moment before there was someone to tell
                self.command.send_signal(signal.SIGTERM)
            if math.isinf(end):
                return self.command.wait()
            for before_s, number in (
                (min(GIVE_UP_DELAY_S, limit_s / 3), signal.SIGTERM),
                (min(LATE_S, limit_s / 10), signal.SIGKILL),
            ):
                try:
                    return self.command.wait(max(0.0, end - before_s - time.monotonic()))
                except subprocess.TimeoutExpired:
                    self.late = number == signal.SIGKILL
                    if self.late or not self.asked:
                        self.asked = self.asked or "the time limit"
                        self.command.send_signal(number)
            return self.command.wait()


def _end_with_parent() -> None:
    """The kernel asks the command to stop where its parent is killed: two would do one's work."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def start_again(job: Any, why: str) -> NoReturn:
    """Put the job back into the queue and leave it."""
    starts = int(os.environ.get("SLURM_RESTART_COUNT", "0")) + 1
    if starts >= MOST_STARTS:
        raise CommandError(f"{why}; still not finished after {starts} starts")
    if left_error(job.paths.folder, job.job_id):  # srun then ends the others by a SIGTERM
        raise CommandError(f"{why}; another process of the job has failed")
    if job.cluster == "slurm":
        try:
            put_back(job.job_id)
        except ClusterError as error:
            raise CommandError(f"{why}; {error}") from error
    else:
        job._requeue(MOST_STARTS - starts)
    print(f"start {starts} has ended: {why}; the job waits to be started again", flush=True)
    sys.exit(TRY_AGAIN)


def put_back(job_id: str) -> None:
    """Let Slurm start the job again; ClusterError if it was ended from outside.

    Slurm would start a cancelled one again as well. Another process may have been faster.
    """
    if not waits(job_id):
        patient("scontrol", "requeue", job_id)


def waits(job_id: str) -> bool:
    """Whether the job waits for its next start already; ClusterError if it was ended."""
    word = patient("squeue", "--noheader", "--format=%T", f"--jobs={job_id}").strip()
    if word not in GOES_ON | WAITING:
        raise ClusterError("the job was ended from outside")
    return word in WAITING


def patient(*words: str) -> str:
    """What one of Slurm's programs prints, asked again for a while where it fails."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask(*words)
        except ClusterError:
            if time.monotonic() + PAUSE_S > until:
                raise
        time.sleep(PAUSE_S)


def note_kill(folder: Path, job_id: str) -> int:
    """In how many starts the job was killed since it last saved, this one included.

    A start counts once, however many of its processes were killed: each leaves the same file.
    """
    start = os.environ.get("SLURM_RESTART_COUNT", "0")
    (folder / f"{job_id}.killed-{start}").touch()
    return len(list(folder.glob(f"{job_id}.killed-*")))


def forget_kills(folder: Path, job_id: str) -> None:
    """It has saved: what comes is another work."""
    for file in folder.glob(f"{job_id}.killed-*"):
        file.unlink(missing_ok=True)


def after_kill(folder: Path, status: int) -> bool:
    """Start a job again that was killed before it could say a word; whether that was done."""
    job_id = os.environ["SLURM_JOB_ID"]
    if "SLURM_ARRAY_TASK_ID" in os.environ:
        job_id = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    # where a node is dead and not yet known to be, srun fails before any process starts
    several = int(os.environ.get("SLURM_JOB_NUM_NODES", "1")) > 1 and status != TRY_AGAIN
    if not (killer_of(status) or several) or any(folder.glob(f"{job_id}_*_result.pkl")):
        return False
    try:
        if waits(job_id) or note_kill(folder, job_id) > MOST_KILLS:
            return False
        put_back(job_id)
    except ClusterError as error:
        print(f"not started again: {error}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    after_kill(Path(sys.argv[1]), int(sys.argv[2]))
