"""Where jobs are: from squeue, from the accounts where there are any, and from what jobs left."""

import os
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slurm.cluster import ClusterError, ask

Stage = Literal["queued", "running", "ended", "unknown"]
WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}
GOING = {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "STAGE_OUT", "SIGNALING"}
JOBS_AT_ONCE = 500
"""In one command line."""
LOG_BYTES = 16_384
"""Of a log's end, in which last words are looked for."""
NOT_THE_COMMANDS = ("srun:", "slurmstepd", "submitit ")


@dataclass(frozen=True)
class JobState:
    """Of one job or one element of an array."""

    stage: Stage
    word: str = ""
    """Slurm's, such as TIMEOUT."""
    reason: str = ""
    """Why it waits, where it runs, or how it ended."""


def job_states(jobs: Sequence[str]) -> dict[str, JobState]:
    """By job id; ClusterError if the controller does not answer.

    The accounts are asked about jobs that the controller has forgotten, and may be missing.
    """
    text = ask("squeue", "--me", "--states=all", "--array", "--noheader", "--format=%i|%T|%r|%N")
    known = _of(jobs, text)
    forgotten = [job for job in jobs if job not in known]
    return known | _from_accounts(forgotten)


def _from_accounts(jobs: Sequence[str]) -> dict[str, JobState]:
    told = []
    masters = list(dict.fromkeys(job.partition("_")[0] for job in jobs))
    for start in range(0, len(masters), JOBS_AT_ONCE):
        some = ",".join(masters[start : start + JOBS_AT_ONCE])
        try:
            told.append(ask("sacct", "-XnP", "-j", some, "--format=JobID,State,Reason,NodeList"))
        except ClusterError:
            break
    return _of(jobs, "".join(told))


def _of(jobs: Sequence[str], text: str) -> dict[str, JobState]:
    """Those of the jobs that lines "id|state|reason|nodes" tell of.

    An array that is cancelled before it has begun is told as one job.
    """
    rows = dict(_rows(text))
    found = {job: rows.get(job) or rows.get(job.partition("_")[0]) for job in jobs}
    return {job: state for job, state in found.items() if state is not None}


def _rows(text: str) -> Iterable[tuple[str, JobState]]:
    """Every element of an array by itself; its rest may be told as "7_[2-5,8%2]"."""
    for line in text.splitlines():
        name, word, reason, nodes = [*line.split("|"), "", "", ""][:4]
        word = word.split()[0] if word else ""  # "CANCELLED by 0"
        if word in WAITING:
            state = JobState("queued", word, reason)
        elif word in GOING:
            state = JobState("running", word, f"on {nodes}")
        else:
            state = JobState("ended", word, f"{word} on {nodes}" if nodes else word)
        master, bracket, rest = name.partition("_[")
        if not bracket:
            yield name, state
            continue
        for part in rest.rstrip("]").partition("%")[0].split(","):
            first, _, last = part.partition("-")
            if not (first + last).isdigit():  # "..." of a list that was shortened
                continue
            for element in range(int(first), int(last or first) + 1):
                yield f"{master}_{element}", state


def left_error(folder: Path, job: str) -> str | None:
    """The last line of the error that a job has left, of its first process that failed.

    Empty if it has succeeded, None if it has left nothing: it waits, runs, or was killed.
    """
    files = sorted(folder.glob(f"{job}_*_result.pkl"), key=lambda path: path.stat().st_mtime)
    outcomes = [pickle.loads(path.read_bytes()) for path in files]
    for outcome, content in outcomes:
        if outcome == "error":
            return str(content).strip().splitlines()[-1].partition(": ")[2] or str(content)
    return "" if outcomes else None


def log_path(folder: Path, job: str) -> Path:
    """Where the job's first process writes its messages."""
    return folder / f"{job}_0_log.err"


def last_words(log: Path) -> str:
    """The last line that a job's command has written, empty if there is none.

    What srun and submitit add, and the traceback of the process around the command, are no words
    of the command.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
            text = file.read().decode(errors="replace").replace("\r", "\n")
    except FileNotFoundError:
        return ""
    if "slurm.requeue.CommandError: " in text:
        text = text.rpartition("Traceback (most recent call last):")[0]
    lines = [line.strip() for line in text.split("\n")]
    own = [line for line in lines if line and not line.startswith(NOT_THE_COMMANDS)]
    return own[-1] if own else ""


def cancel(jobs: Sequence[str]) -> None:
    """End jobs that wait or run; ClusterError if the controller does not answer."""
    for start in range(0, len(jobs), JOBS_AT_ONCE):
        ask("scancel", *jobs[start : start + JOBS_AT_ONCE])
