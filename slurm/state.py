"""States of jobs, from squeue, accounting and log files."""

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
"""Bytes at the end of a log to search for its last line."""
ENDLESS = {
    "PartitionTimeLimit": "its time limit is above the partition's",
    "PartitionNodeLimit": "it requests more nodes than the partition allows",
    "AssocMaxWallDurationPerJobLimit": "its time limit is above the account's",
    "QOSMaxWallDurationPerJobLimit": "its time limit is above the QOS's",
    "BadConstraints": "no node has the requested features",
    "AccountNotAllowed": "the partition does not allow this account",
    "QOSNotAllowed": "the partition does not allow this QOS",
    "InvalidAccount": "the account does not exist on the cluster",
    "InvalidQOS": "the QOS does not exist on the cluster",
    "DependencyNeverSatisfied": "a job that it depends on ended with another status",
    "JobHeldUser": "it is held until scontrol release",
    "JobHeldAdmin": "an administrator holds it",
    "ReservationDeleted": "its reservation was deleted",
}
"""Meanings of reasons for which a job waits until somebody acts."""
LAUNCHER_PREFIXES = ("srun:", "slurmstepd", "submitit ")


@dataclass(frozen=True)
class JobState:
    """State of a job or of one element of an array."""

    stage: Stage
    slurm_state: str = ""
    """Slurm's name of the state, such as TIMEOUT."""
    reason: str = ""
    """Why the job waits, where it runs, or how it ended."""


def job_states(jobs: Sequence[str]) -> dict[str, JobState]:
    """Return states by job id; ClusterError if the controller does not respond.

    States that the controller no longer stores come from accounting, if available.
    """
    text = ask("squeue", "--me", "--states=all", "--array", "--noheader", "--format=%i|%T|%r|%N")
    states = _parse_states(jobs, text)
    if forgotten := [job for job in jobs if job not in states]:
        masters = ",".join(dict.fromkeys(job.partition("_")[0] for job in forgotten))
        with suppress(ClusterError):
            text = ask("sacct", "-XnP", "-j", masters, "--format=JobID,State,Reason,NodeList")
            states |= _parse_states(forgotten, text)
    return states


def _parse_states(jobs: Sequence[str], text: str) -> dict[str, JobState]:
    """Return the states of the jobs that occur in lines "id|state|reason|nodes".

    An array that is cancelled before it starts appears as one job.
    """
    rows = dict(_rows(text))
    states = {job: rows.get(job) or rows.get(job.partition("_")[0]) for job in jobs}
    return {job: state for job, state in states.items() if state is not None}


def _rows(text: str) -> Iterable[tuple[str, JobState]]:
    """Yield the id and state of each job; expand "7_[2-5,8%2]"."""
    for line in text.splitlines():
        name, slurm_state, reason, nodes = [*line.split("|"), "", "", ""][:4]
        slurm_state = slurm_state.split()[0] if slurm_state else ""  # "CANCELLED by 0"
        if slurm_state in WAITING:
            state = JobState("queued", slurm_state, _explained(reason))
        elif slurm_state in GOING:
            state = JobState("running", slurm_state, f"on {nodes}")
        else:
            state = JobState(
                "ended", slurm_state, f"{slurm_state} on {nodes}" if nodes else slurm_state
            )
        master, bracket, elements = name.partition("_[")
        if not bracket:
            yield name, state
            continue
        for element_range in elements.rstrip("]").partition("%")[0].split(","):
            first, _, last = element_range.partition("-")
            if not (first + last).isdigit():  # "..." at the end of a shortened list
                continue
            for element in range(int(first), int(last or first) + 1):
                yield f"{master}_{element}", state


def _explained(reason: str) -> str:
    """Return why a job waits, with a note if it waits forever."""
    meaning = ENDLESS.get(reason)
    if meaning is None and reason.endswith("PerJob"):  # such as QOSMaxCpuPerJob
        meaning = "it requests more than a job may have"
    return f"{reason}: {meaning}; it will not start without a change" if meaning else reason


def log_path(folder: Path, job: str) -> Path:
    """Return the path of the error log of the job's first process."""
    return folder / f"{job}_0_log.err"


def last_log_line(log: Path) -> str:
    """Return the last log line of a job's command, or "".

    Lines of srun, submitit and `slurm.requeue` are skipped. The log may belong to another user.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
            text = file.read().decode(errors="replace").replace("\r", "\n")
    except OSError:
        return ""
    lines = [line.strip() for line in text.split("\n")]
    of_command = [line for line in lines if line and not line.startswith(LAUNCHER_PREFIXES)]
    return of_command[-1] if of_command else ""
