"""States of jobs: from squeue, from accounting where there is any, and from files of the jobs."""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slurm.cluster import ClusterError, ask

Stage = Literal["queued", "running", "ended", "unknown"]
WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}
GOING = {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "STAGE_OUT", "SIGNALING"}
LOG_BYTES = 16_384
"""Bytes at the end of a log in which its last line is looked for."""
ENDLESS = {
    "PartitionTimeLimit": "its time limit is above the partition's",
    "PartitionNodeLimit": "it asks for more nodes than the partition allows",
    "AssocMaxWallDurationPerJobLimit": "its time limit is above the account's",
    "QOSMaxWallDurationPerJobLimit": "its time limit is above that of the QOS",
    "BadConstraints": "no node has what it asks for",
    "AccountNotAllowed": "the partition does not take this account",
    "QOSNotAllowed": "the partition does not take this QOS",
    "InvalidAccount": "the cluster does not know this account",
    "InvalidQOS": "the cluster does not know this QOS",
    "DependencyNeverSatisfied": "the job that it waits for ended in another way",
    "JobHeldUser": "it is held until scontrol release",
    "JobHeldAdmin": "an administrator holds it",
    "ReservationDeleted": "its reservation is gone",
}
"""Reasons for which a job waits until somebody acts, and what they mean."""
LAUNCHER_PREFIXES = ("srun:", "slurmstepd", "submitit ")


@dataclass(frozen=True)
class JobState:
    """State of a job or of one element of an array."""

    stage: Stage
    word: str = ""
    """Slurm's name of the state, such as TIMEOUT."""
    reason: str = ""
    """Reason for waiting, place of running, or way of ending."""


def job_states(jobs: Sequence[str]) -> dict[str, JobState]:
    """Return states by job id; ClusterError if the controller does not answer.

    Jobs that the controller has forgotten come from the accounts, if there are any.
    """
    text = ask("squeue", "--me", "--states=all", "--array", "--noheader", "--format=%i|%T|%r|%N")
    known = _parse_states(jobs, text)
    if forgotten := [job for job in jobs if job not in known]:
        masters = ",".join(dict.fromkeys(job.partition("_")[0] for job in forgotten))
        with suppress(ClusterError):
            text = ask("sacct", "-XnP", "-j", masters, "--format=JobID,State,Reason,NodeList")
            known |= _parse_states(forgotten, text)
    return known


def _parse_states(jobs: Sequence[str], text: str) -> dict[str, JobState]:
    """Return the states of those jobs that appear in lines "id|state|reason|nodes".

    An array that is cancelled before it has begun appears as one job.
    """
    rows = dict(_rows(text))
    states = {job: rows.get(job) or rows.get(job.partition("_")[0]) for job in jobs}
    return {job: state for job, state in states.items() if state is not None}


def _rows(text: str) -> Iterable[tuple[str, JobState]]:
    """Yield id and state of each line, of each element where a line is "7_[2-5,8%2]"."""
    for line in text.splitlines():
        name, word, reason, nodes = [*line.split("|"), "", "", ""][:4]
        word = word.split()[0] if word else ""  # "CANCELLED by 0"
        if word in WAITING:
            state = JobState("queued", word, _explained(reason))
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
            if not (first + last).isdigit():  # "..." at the end of a shortened list
                continue
            for element in range(int(first), int(last or first) + 1):
                yield f"{master}_{element}", state


def _explained(reason: str) -> str:
    """Return a reason for waiting, and what it means if waiting does not help."""
    meaning = ENDLESS.get(reason)
    if meaning is None and reason.endswith("PerJob"):  # such as QOSMaxCpuPerJob
        meaning = "it asks for more than one job may have"
    return f"{reason}: {meaning}; waiting does not help" if meaning else reason


def log_path(folder: Path, job: str) -> Path:
    """Return the path of the messages of the job's first process."""
    return folder / f"{job}_0_log.err"


def last_log_line(log: Path) -> str:
    """Return the last line that a job's command has written, empty if there is none.

    Lines of srun, submitit and `slurm.requeue` do not count.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
            text = file.read().decode(errors="replace").replace("\r", "\n")
    except FileNotFoundError:
        return ""
    lines = [line.strip() for line in text.split("\n")]
    own_lines = [line for line in lines if line and not line.startswith(LAUNCHER_PREFIXES)]
    return own_lines[-1] if own_lines else ""
