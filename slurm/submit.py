"""Arrays of jobs, after one another: all of a submission are accepted, or none stays."""

import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slurm.cluster import Cluster, ClusterError, ask
from slurm.ranks import NAMES as RANK_NAMES
from slurm.requeue import MOST_STARTS, Command
from slurm.resources import Queue, Resources
from slurm.state import cancel

HERE = Path(__file__).resolve().parents[1]
"""What jobs import, wherever they were submitted from."""
ANY_NUMBER = 10_000
OF_A_JOB = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_MEM_BIND", "SBATCH_CPU_BIND", "SUBMITIT_")
"""How names of variables begin that a job leaves to what it submits."""
OF_THE_CLUSTER = ("SLURM_CONF", "SLURM_CLUSTERS")


@dataclass(frozen=True, kw_only=True)
class Array:
    """Jobs of one size that do not wait for each other."""

    name: str
    work: tuple[Command | Callable[[], object], ...]
    resources: Resources
    parallel: int = 0
    """How many run at a time at most. 0: as many as the cluster allows."""
    after: tuple[int, ...] = ()
    """Places, in the submission, of arrays that must have ended, in whatever way."""
    partition: str = ""
    """Instead of the queue's."""


def submit(
    arrays: Sequence[Array], queue: Queue, folder: Path, cluster: Cluster
) -> list[list[str]]:
    """Job ids of each array's work, in its order; ClusterError if anything was refused.

    Slurm is asked about every array before the first one is submitted. An array that is too large
    for the cluster is split; where it is bounded, each piece waits for the end of the one before.
    folder: of logs and pickles, on a file system that all nodes share.
    """
    submitted: list[list[str]] = []
    with outside_of_jobs():
        for array in arrays:
            _refused_early(array, queue, folder)
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
            raise ClusterError(f"{error}; {taken_back(folder, submitted)}") from error
        except BaseException as error:  # whatever it is, nothing stays half submitted
            error.add_note(taken_back(folder, submitted))
            raise
    return submitted


@contextmanager
def outside_of_jobs() -> Iterator[None]:
    """What is submitted from inside a job takes nothing over from it."""
    inherited = os.environ if "SLURM_JOB_ID" in os.environ else {}
    names = [name for name in inherited if name.startswith(OF_A_JOB) or name in RANK_NAMES]
    hidden = {name: os.environ.pop(name) for name in names if name not in OF_THE_CLUSTER}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _submit(array: Array, after: tuple[str, ...], queue: Queue, folder: Path) -> list[str]:
    from submitit import AutoExecutor
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    # named, because submitit's own choice depends on what else is installed on the machine
    executor = AutoExecutor(folder=folder, cluster="slurm", slurm_max_num_timeout=MOST_STARTS)
    parameters = _parameters(array, queue, folder, after)
    executor.update_parameters(**{f"slurm_{key}": value for key, value in parameters.items()})
    try:
        with executor.batch():
            jobs = [executor.submit(work) for work in array.work]
    except (FailedJobError, FailedSubmissionError, OSError) as error:
        raise ClusterError(f"{array.name} was not submitted: {error}") from error
    return [job.job_id for job in jobs]


def script(array: Array, queue: Queue, folder: Path) -> str:
    """What sbatch would be given for an array, were it the only one."""
    from submitit.slurm.slurm import _make_sbatch_string

    command = (
        f"{shlex.quote(sys.executable)} -u -m submitit.core._submit {shlex.quote(str(folder))}"
    )
    parameters = _parameters(array, queue, folder, ())
    if len(array.work) > 1:
        parameters["map_count"] = len(array.work)
    text: str = _make_sbatch_string(command=command, folder=folder, **parameters)
    return text


def _refused_early(array: Array, queue: Queue, folder: Path) -> None:
    """ClusterError with sbatch's words if the cluster would not take the array."""
    small = replace(array, work=array.work[:1])
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
        file.write(script(small, queue, folder))
        file.flush()
        ask("sbatch", "--test-only", file.name)


def _parameters(array: Array, queue: Queue, folder: Path, after: tuple[str, ...]) -> dict[str, Any]:
    """Of submitit's SlurmExecutor."""
    options: dict[str, Any] = {"requeue": True, **queue.options()}
    srun = []
    if array.resources.nodes * array.resources.processes_per_node > 1:
        srun.append("--kill-on-bad-exit=1")  # the others would wait for the dead until the limit
    if array.resources.cpus:  # since 22.05 srun does not take it from sbatch
        srun.append(f"--cpus-per-task={array.resources.cpus}")
    parameters = {
        **array.resources.parameters(),
        **queue.parameters(),
        "job_name": array.name,
        "setup": _setup(array.resources, queue),
        "teardown": _teardown(folder),
        "comment": str(folder),
        "array_parallelism": array.parallel or ANY_NUMBER,
        "srun_args": srun,
        "additional_parameters": options,
    }
    if array.partition:
        parameters["partition"] = array.partition
    if array.resources.gpus and queue.gpu_type:
        parameters["gpus_per_node"] = f"{queue.gpu_type}:{array.resources.gpus}"
    if after:
        masters = dict.fromkeys(job.partition("_")[0] for job in after)
        parameters["dependency"] = ":".join(["afterany", *masters])
    return parameters


def _setup(resources: Resources, queue: Queue) -> list[str]:
    """A line that fails ends the job: Slurm alone would go on without it."""
    end = f"$(($(date +%s) + {60 * resources.minutes}))"  # older releases do not tell it
    lines = [
        f"{line} || {{ echo {shlex.quote(f'failed: {line}')} >&2; exit 1; }}"
        for line in queue.setup
    ]
    return [
        "trap : TERM INT USR1 USR2",  # scancel --full reaches the script, which has more to do
        f"export SLURM_JOB_END_TIME=${{SLURM_JOB_END_TIME:-{end}}}",
        *lines,
        f"export PYTHONPATH={shlex.quote(str(HERE))}${{PYTHONPATH:+:$PYTHONPATH}}",
    ]


def _teardown(folder: Path) -> list[str]:
    """The job ends as its command did, unless it was killed and starts again."""
    again = f"{shlex.quote(sys.executable)} -m slurm.requeue {shlex.quote(str(folder))}"
    return ["status=$?", f"[ $status -eq 0 ] || {again} $status", "exit $status"]


def taken_back(folder: Path, submitted: Sequence[Sequence[str]]) -> str:
    """Cancel what was submitted, and say so; also what was accepted without our knowing.

    The latter is found by its folder, which each job has as its comment.
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
