"""A command as a job: it is asked to save before the job must end, and started again afterwards.

Slurm and submitit leave gaps that are closed here. The command itself gets a signal on some
clusters only (proctrack/cgroup reaches only the process that Slurm started), SIGTERM is ignored by
submitit, and its first process alone asks to be started again.
python -m slurm.requeue FOLDER STATUS is called by the batch script after a job that was killed.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from slurm.ranks import environment
from slurm.state import left_error

TRY_AGAIN = 75
"""Exit status of a command that has saved and goes on when started again: EX_TEMPFAIL."""
MOST_STARTS = 100
"""Of one job, whatever the reasons."""
MOST_KILLS = 3
"""After which a job that saves nothing is given up: it would be killed for ever."""
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
        status = requests.run(self.words, environment(job, os.environ))
        if status == 0:
            return
        if status == TRY_AGAIN or requests.asked:
            why = f"asked to stop by {requests.asked}" if requests.asked else "it has saved"
            if status == TRY_AGAIN:
                kills_file(job.paths.folder, job.job_id).unlink(missing_ok=True)
            if job.global_rank:
                time.sleep(3600)  # the first process starts all again, and this one is killed
            start_again(job, why)
        if status < 0:
            name = signal.Signals(-status).name
            if note_kill(job.paths.folder, job.job_id) <= MOST_KILLS:
                start_again(job, f"killed by {name}")
            raise CommandError(f"killed by {name} {MOST_KILLS + 1} times; is memory too small?")
        if job.num_tasks > 1:
            time.sleep(PRECEDENCE_S)
        raise CommandError(f"exit status {status}")

    def checkpoint(self) -> Any:
        """What submitit starts again when its own handler is the first to hear of the end."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


class _Requests:
    """Signals that ask the job to end, handed on to its command."""

    def __init__(self) -> None:
        self.asked = ""
        self.command: subprocess.Popen[bytes] | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        """Signal handler."""
        self.asked = signal.Signals(number).name
        if self.command is not None:
            self.command.send_signal(signal.SIGTERM)

    def run(self, words: tuple[str, ...], settings: dict[str, str]) -> int:
        """Exit status of a command, negative if a signal has killed it."""
        with subprocess.Popen(words, env=settings, preexec_fn=_end_with_parent) as self.command:
            if self.asked:  # a moment before there was someone to tell
                self.command.send_signal(signal.SIGTERM)
            return self.command.wait()


def _end_with_parent() -> None:
    """The kernel asks the command to stop where its parent is killed: two would do one's work."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def start_again(job: Any, why: str) -> None:
    """Put the job back into the queue and leave it."""
    starts = int(os.environ.get("SLURM_RESTART_COUNT", "0")) + 1
    if starts >= MOST_STARTS:
        raise CommandError(f"{why}; still not finished after {starts} starts")
    if left_error(job.paths.folder, job.job_id):  # srun then ends the others by a SIGTERM
        raise CommandError(f"{why}; another process of the job has failed")
    if job.cluster == "slurm" and not goes_on(job.job_id):
        raise CommandError(f"{why}; the job was ended from outside")
    job._requeue(MOST_STARTS - starts)
    print(f"start {starts} has ended: {why}; the job waits to be started again", flush=True)
    sys.exit(TRY_AGAIN)


def goes_on(job_id: str) -> bool:
    """Whether nobody has ended the job: Slurm would start a cancelled one again as well."""
    words = ("squeue", "--noheader", "--format=%T", f"--jobs={job_id}")
    return subprocess.run(words, capture_output=True, text=True).stdout.strip() == "RUNNING"


def note_kill(folder: Path, job_id: str) -> int:
    """How often the job was killed since it last saved, this time included."""
    file = kills_file(folder, job_id)
    kills = 1 + (int(file.read_text()) if file.exists() else 0)
    file.write_text(str(kills))
    return kills


def kills_file(folder: Path, job_id: str) -> Path:
    """Where the count is kept between starts."""
    return folder / f"{job_id}.kills"


def after_kill(folder: Path, status: int) -> bool:
    """Start a job again that was killed before it could say a word; whether that was done."""
    job_id = os.environ["SLURM_JOB_ID"]
    if "SLURM_ARRAY_TASK_ID" in os.environ:
        job_id = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    if status <= 128 or status > 128 + signal.NSIG or any(folder.glob(f"{job_id}_*_result.pkl")):
        return False
    if not goes_on(job_id) or note_kill(folder, job_id) > MOST_KILLS:
        return False
    return subprocess.run(["scontrol", "requeue", job_id]).returncode == 0


if __name__ == "__main__":
    after_kill(Path(sys.argv[1]), int(sys.argv[2]))
