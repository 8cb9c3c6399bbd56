"""Submission of arrays of jobs: either all are accepted, or none stays in the queue."""

import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slurm.cluster import Cluster, ClusterError, ask
from slurm.requeue import MAX_STARTS, Command
from slurm.requeue import NAMES as RANK_NAMES
from slurm.resources import GIVE_UP_DELAY_S, Queue, Resources
from slurm.state import cancel

PROJECT = Path(__file__).resolve().parents[1]
"""Folder that jobs import from, wherever they were submitted."""
UNBOUNDED = 10_000
"""Parallel jobs of an array without a bound."""
JOB_PREFIXES = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_MEM_BIND", "SBATCH_CPU_BIND", "SUBMITIT_")
"""Beginnings of the names of variables that belong to the job around a submission."""
CLUSTER_NAMES = ("SLURM_CONF", "SLURM_CLUSTERS")


@dataclass(frozen=True, kw_only=True)
class Array:
    """Jobs of one size that do not wait for each other."""

    name: str
    work: tuple[Command | Callable[[], object], ...]
    resources: Resources
    parallel: int = 0
    """Largest number of jobs that run at a time. 0: as many as the cluster allows."""
    after: tuple[int, ...] = ()
    """Places in the submission of arrays that must have ended before, in whatever way."""
    partition: str = ""
    """Partition in place of the queue's; empty: the queue's."""


def submit(
    arrays: Sequence[Array], queue: Queue, folder: Path, cluster: Cluster
) -> list[list[str]]:
    """Submit arrays; return the job ids of each array's work, in its order.

    ClusterError if one is refused; those before it are cancelled. An array that is too large for
    the cluster is split, and if its parallel jobs are bounded, each piece waits for the end of the
    one before. `folder` is for logs and pickles, on a file system that all nodes share.
    """
    submitted: list[list[str]] = []
    with hide_job_variables():
        try:
            for array in arrays:
                after = tuple(job for place in array.after for job in submitted[place])
                submitted.append([])
                for start in range(0, len(array.work), cluster.max_array):
                    piece = array.work[start : start + cluster.max_array]
                    ids = _submit(replace(array, work=piece), after, queue, folder)
                    submitted[-1] += ids
                    after = tuple(ids) if array.parallel else after
        except ClusterError as error:
            raise ClusterError(f"{error}; {cancel_submitted(folder, submitted)}") from error
        except BaseException as error:  # whatever it is, nothing stays half submitted
            error.add_note(cancel_submitted(folder, submitted))
            raise
    return submitted


def unique_name() -> str:
    """Return the time as the name of a submission's folder: to take back jobs it must be unique."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}.{time.time_ns() % 10**9:09}"


@contextmanager
def hide_job_variables() -> Iterator[None]:
    """Hide the variables of the job around, so that jobs submitted from a job inherit nothing."""
    inherited = os.environ if "SLURM_JOB_ID" in os.environ else {}
    names = [name for name in inherited if name.startswith(JOB_PREFIXES) or name in RANK_NAMES]
    hidden = {name: os.environ.pop(name) for name in names if name not in CLUSTER_NAMES}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _submit(array: Array, after: tuple[str, ...], queue: Queue, folder: Path) -> list[str]:
    from submitit import AutoExecutor
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    # named, because submitit's own choice depends on what else is installed on the machine
    executor = AutoExecutor(folder=folder, cluster="slurm", slurm_max_num_timeout=MAX_STARTS)
    parameters = _parameters(array, queue, folder, after)
    executor.update_parameters(**{f"slurm_{key}": value for key, value in parameters.items()})
    try:
        with executor.batch():
            jobs = [executor.submit(work) for work in array.work]
    except (FailedJobError, FailedSubmissionError, OSError) as error:
        raise ClusterError(f"{array.name} was not submitted from {folder}: {error}") from error
    return [job.job_id for job in jobs]


def script(array: Array, queue: Queue, folder: Path) -> str:
    """Return the script that sbatch would get for an array that is submitted alone."""
    from submitit.slurm.slurm import _make_sbatch_string

    command = (
        f"{shlex.quote(sys.executable)} -u -m submitit.core._submit {shlex.quote(str(folder))}"
    )
    parameters = _parameters(array, queue, folder, ())
    if len(array.work) > 1:
        parameters["map_count"] = len(array.work)
    text: str = _make_sbatch_string(command=command, folder=folder, **parameters)
    return text


def _parameters(array: Array, queue: Queue, folder: Path, after: tuple[str, ...]) -> dict[str, Any]:
    """Return the parameters of submitit's SlurmExecutor for an array, those that are set."""
    size, srun = array.resources, []
    if size.nodes * size.processes_per_node > 1:
        srun.append("--kill-on-bad-exit=1")  # the others would wait for the dead until the limit
    if size.cpus:  # since 22.05 srun does not take it from sbatch
        srun.append(f"--cpus-per-task={size.cpus}")
    masters = dict.fromkeys(job.partition("_")[0] for job in after)
    parameters = {
        "time": size.minutes,
        "nodes": size.nodes,
        "ntasks_per_node": size.processes_per_node,
        "signal_delay_s": min(GIVE_UP_DELAY_S, 20 * size.minutes),
        "gpus_per_node": f"{queue.gpu_type}:{size.gpus}".lstrip(":") if size.gpus else "",
        "cpus_per_task": size.cpus,
        "mem": f"{math.ceil(size.memory_gb * 1024)}MB" if size.memory_gb else "",
        "partition": array.partition or queue.partition,
        "qos": queue.qos,
        "account": queue.account,
        "constraint": queue.constraint,
        "exclude": queue.exclude_nodes,
        "dependency": ":".join(["afterany", *masters]) if masters else "",
        "job_name": array.name,
        "setup": _setup(size, queue),
        "teardown": _teardown(folder),
        "comment": str(folder),
        "array_parallelism": array.parallel or UNBOUNDED,
        "srun_args": srun,
        "additional_parameters": {"requeue": True, **queue.options()},
    }
    return {name: value for name, value in parameters.items() if value}


def _setup(resources: Resources, queue: Queue) -> list[str]:
    """Return lines of bash before the command; one that fails ends the job."""
    end = f"$(($(date +%s) + {60 * resources.minutes}))"  # older releases of Slurm do not set it
    lines = [
        f"{line} || {{ echo {shlex.quote(f'failed: {line}')} >&2; exit 1; }}"
        for line in queue.setup
    ]
    return [
        "trap : TERM INT USR1 USR2",  # scancel --full reaches the script, which has more to do
        f"export SLURM_JOB_END_TIME=${{SLURM_JOB_END_TIME:-{end}}}",
        *lines,
        f"export PYTHONPATH={shlex.quote(str(PROJECT))}${{PYTHONPATH:+:$PYTHONPATH}}",
    ]


def _teardown(folder: Path) -> list[str]:
    """Return lines of bash after the command: the job ends with its status, or starts again."""
    again = f"{shlex.quote(sys.executable)} -m slurm.requeue {shlex.quote(str(folder))}"
    return ["status=$?", f"[ $status -eq 0 ] || {again} $status", "exit $status"]


def cancel_submitted(folder: Path, submitted: Sequence[Sequence[str]]) -> str:
    """Cancel what was submitted; return what was done as a text.

    This includes jobs that Slurm accepted although submitit failed: each job has its folder as a
    comment.
    """
    jobs = [job for ids in submitted for job in ids]
    with suppress(ClusterError):
        masters = {job.partition("_")[0] for job in jobs}
        for line in ask("squeue", "--me", "--noheader", "--format=%F|%k").splitlines():
            master, _, comment = line.partition("|")
            if comment == str(folder) and master not in masters:
                jobs.append(master)
    if not jobs:
        return "nothing was submitted"
    try:
        cancel(jobs)
    except ClusterError:
        return f"jobs {', '.join(jobs)} stay: scancel {' '.join(jobs)}"
    return "what had been submitted is cancelled"
