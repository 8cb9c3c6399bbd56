"""Cells as job arrays: the work of run_all --slurm, --retry-failed and --cancel.

There is one array for each size of job. Cells that read the same pass over images are one job, and
run one after another. Cells of one backbone and one data set share features. They wait for a first
array that extracts these, and extract them themselves if it fails. The same holds for cells that
use a classifier; their features, of all backbones, come from one pass over the images. Such cells
also wait for the array that trains the classifier, and train it themselves if that fails. A last
job writes the tables once all others have ended.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.cluster.cell_status import CellStatus, statuses
from benchmarks.cluster.submission import (
    FILE,
    Submission,
    SubmittedCell,
    new_folder,
    submissions,
    submitted_cell,
)
from benchmarks.cluster.watch import print_states, watch
from benchmarks.execution.jobs import (
    Job,
    arguments_of,
    arguments_of_all,
    evaluations,
    extractions,
    process_command,
    without_cells,
)
from benchmarks.execution.started import versions
from benchmarks.planning.checkpoints import Origins
from benchmarks.planning.cluster_resources import resources
from benchmarks.planning.options import SlurmOptions
from benchmarks.planning.plan import PlannedCell
from slurm.cluster import Cluster, ClusterError, cluster
from slurm.requeue import Command
from slurm.resources import Queue, Resources
from slurm.state import cancel, job_states
from slurm.submit import Array, cancel_submitted, script, submit
from transfer.tasks import task_of

TABLES_RESOURCES = Resources(cpus=1, hours=1)
JobCells = tuple[SubmittedCell, ...]
"""Cells of one job: those of one pass over images, or a single one."""


class ArrayKind(NamedTuple):
    """What the jobs of an array share."""

    resources: Resources
    extracted: tuple[int, ...]
    """Places of the arrays that extract their features."""
    trains: bool
    """Others use a classifier that they train."""
    uses: bool
    """They use a classifier."""


@dataclass(frozen=True)
class ArrayPlan:
    """Arrays that will be submitted, and the cells of each."""

    arrays: tuple[Array, ...]
    cells: tuple[tuple[JobCells, ...], ...]
    """Cells of each job of each array; empty for arrays that only help."""


def plan_arrays(
    rows: Sequence[PlannedCell], origins: Origins, options: SlurmOptions, folder: Path
) -> ArrayPlan:
    """Return the arrays for the rows in state "run"."""
    helpers: list[Array] = []
    extracted: dict[Path, tuple[int, ...]] = {}
    for joint in (False, True):  # two arrays: other cells need not wait for the long joint pass
        jobs = [job for job in extractions(rows) if (job.cell.needed is not None) == joint]
        if jobs:
            extracted |= {cell.path: (len(helpers),) for job in jobs for cell in job.cells}
            helpers.append(_extraction_array(jobs, origins, options))
    evaluating = evaluations(rows)
    needed = {job.needs for job in evaluating}
    sizes: dict[ArrayKind, list[JobCells]] = {}
    for job in evaluating:
        requested = resources(replace(job.rows[0], gpu_hours=job.hours), options)
        kind = ArrayKind(
            requested,
            extracted.get(job.cell.path, ()),
            trains=any(cell.path in needed for cell in job.cells),
            uses=job.needs is not None,
        )
        cells = (submitted_cell(c, arguments_of(c, origins), requested) for c in job.cells)
        sizes.setdefault(kind, []).append(tuple(cells))
    return _with_tables(helpers, sizes, options, folder)


def _extraction_array(jobs: Sequence[Job], origins: Origins, options: SlurmOptions) -> Array:
    """Return an array of jobs that extract features, as long as the longest of them."""
    hours = max(job.hours for job in jobs)
    return Array(
        name="extract",
        work=tuple(Command(process_command(job.arguments(origins))) for job in jobs),
        resources=resources(replace(jobs[0].rows[0], gpu_hours=hours), options),
        parallel=options.parallel,
    )


def _with_tables(
    helpers: Sequence[Array],
    sizes: Mapping[ArrayKind, Sequence[JobCells]],
    options: SlurmOptions,
    folder: Path,
) -> ArrayPlan:
    """Return the helpers, an array for each kind of jobs, and last the one that writes the tables.

    Arrays that use classifiers wait for all that train any.
    sizes: kinds in order; those that train classifiers come before those that use them.
    """
    arrays = list(helpers)
    training: tuple[int, ...] = ()
    for kind, jobs in sizes.items():
        after = kind.extracted + training * kind.uses
        training += (len(arrays),) * kind.trains
        work = tuple(
            Command(process_command(arguments_of_all(cell.words for cell in job))) for job in jobs
        )
        arrays.append(
            Array(
                name="cells",
                work=work,
                resources=kind.resources,
                parallel=options.parallel,
                after=after,
            )
        )
    arrays.append(_tables_array(len(arrays), folder, options.tables_partition))
    return ArrayPlan(tuple(arrays), (*((),) * len(helpers), *map(tuple, sizes.values()), ()))


def _tables_array(num_arrays: int, folder: Path, partition: str) -> Array:
    """Return the array that writes the tables after all others have ended, failed or not."""
    words = (sys.executable, "-m", "benchmarks.cluster.collect", str(folder / FILE))
    after = tuple(range(num_arrays))
    work = (Command(words),)
    return Array(
        name="tables", work=work, resources=TABLES_RESOURCES, after=after, partition=partition
    )


def submit_cells(
    rows: Sequence[PlannedCell],
    origins: Origins,
    options: SlurmOptions,
    runs: Path,
    where: Cluster,
) -> Submission | None:
    """Submit the cells in state "run" that are not queued or running; None if there are none."""
    under_way = {
        status.cell.record: status
        for status in statuses(runs)[0]
        if status.state in ("queued", "running")
    }
    new = without_cells(rows, under_way)
    if len(new) < len(rows):
        count = len(rows) - len(new)
        print(
            f"{count} cells are queued or running already; see python -m benchmarks.status",
            file=sys.stderr,
        )
    if not any(row.state == "run" for row in new):
        return None
    folder = new_folder(runs)
    plan = plan_arrays(new, origins, options, folder)
    return _submit_plan(plan, options, folder, where, new[0].cell.settings.results)


def _submit_plan(
    plan: ArrayPlan, options: SlurmOptions, folder: Path, where: Cluster, results: Path
) -> Submission:
    """Submit the arrays and write the submission file; ClusterError if it cannot be written."""
    jobs = submit(plan.arrays, options.queue, folder, where)
    # not strict below: helpers have jobs but no cells
    cells = tuple(
        replace(cell, job=job)
        for members, ids in zip(plan.cells, jobs, strict=True)
        for together, job in zip(members, ids, strict=False)
        for cell in together
    )
    helpers = tuple(
        job for members, ids in zip(plan.cells, jobs, strict=True) if not members for job in ids
    )
    submission = Submission(
        folder=folder,
        results=str(results.absolute()),
        parallel=options.parallel,
        queue=options.queue,
        tables_partition=options.tables_partition,
        cells=cells,
        helpers=helpers,
    )
    try:
        path = submission.save()
    except OSError as error:  # without the file, the next run would submit the same cells again
        raise ClusterError(f"{error}; {cancel_submitted(folder, jobs)}") from error
    print(
        f"{len(cells)} cells submitted as {len(plan.arrays) - 1} arrays, jobs "
        f"{', '.join(dict.fromkeys(ids[0].partition('_')[0] for ids in jobs))}  ->  {path}\n"
        f"No process needs to stay open; python -m benchmarks.status shows the states"
    )
    return submission


def sbatch_scripts(
    rows: Sequence[PlannedCell], origins: Origins, options: SlurmOptions, runs: Path
) -> str:
    """Return the scripts that sbatch would get."""
    folder = (runs / "slurm" / "WHEN").absolute()
    plan = plan_arrays(rows, origins, options, folder)
    return "\n\n".join(
        f"# {array.name}: {len(array.work)} jobs\n{script(array, options.queue, folder)}"
        for array in plan.arrays
    )


def retry_failed(runs: Path, options: SlurmOptions) -> list[Submission]:
    """Submit the failed and cancelled cells again; return the new submissions.

    They keep the resources of their first submission, except where an option is given.
    """
    where = cluster(options.queue.partition)
    again: dict[Path, list[CellStatus]] = {}
    for status in statuses(runs)[0]:
        if status.state in ("failed", "cancelled"):
            again.setdefault(status.submission.folder, []).append(status)
    return [_retry(failed, options, runs, where) for failed in again.values()]


def _retry(
    failed: Sequence[CellStatus], options: SlurmOptions, runs: Path, where: Cluster
) -> Submission:
    """Submit these cells of one submission again, as a new submission."""
    old = failed[0].submission
    options = merge_options(options, old)
    folder = new_folder(runs)
    used = {status.cell.key: task_of(status.cell.key).needs for status in failed}
    sizes: dict[ArrayKind, list[JobCells]] = {}
    for job in sorted(_by_job(failed), key=lambda job: bool(used[job[0].cell.key])):
        requested = job[0].cell.resources
        requested = replace(
            requested,
            hours=options.hours or requested.hours,
            cpus=options.cpus or requested.cpus,
            memory_gb=options.memory_gb or requested.memory_gb,
        )
        fresh = tuple(
            replace(
                status.cell, job="", resources=requested, before=versions(Path(status.cell.record))
            )
            for status in job
        )
        kind = ArrayKind(
            requested,
            (),
            trains=any(status.cell.key in used.values() for status in job),
            uses=bool(used[job[0].cell.key]),
        )
        sizes.setdefault(kind, []).append(fresh)
    plan = _with_tables([], sizes, options, folder)
    return _submit_plan(plan, options, folder, where, Path(old.results))


def _by_job(statuses: Sequence[CellStatus]) -> list[list[CellStatus]]:
    """Return the cells of each job, which read the same pass over images."""
    jobs: dict[str, list[CellStatus]] = {}
    for status in statuses:
        jobs.setdefault(status.cell.job, []).append(status)
    return list(jobs.values())


def merge_options(options: SlurmOptions, old: Submission) -> SlurmOptions:
    """Return the options given now, completed by those of the old submission."""
    changed = {
        spec.name: value
        for spec in fields(Queue)
        if (value := getattr(options.queue, spec.name)) != spec.default
    }
    return replace(
        options,
        queue=replace(old.queue, **changed),
        parallel=options.parallel or old.parallel,
        tables_partition=options.tables_partition or old.tables_partition,
    )


def cancel_all(runs: Path) -> int:
    """Cancel every job that has not ended; return how many."""
    every = [
        job
        for submission in submissions(runs)
        for job in (*submission.helpers, *(cell.job for cell in submission.cells))
    ]
    jobs = list(dict.fromkeys(every))  # cells of one pass have one job
    known = job_states(jobs)
    going = [job for job in jobs if job in known and known[job].stage != "ended"]
    cancel(going)
    return len(going)


def manage_submitted_cells(runs: Path, options: SlurmOptions) -> int:
    """Print the states of submitted cells, after retrying or cancelling if requested.

    Returns 1 if any cell failed or was cancelled, else 0.
    """
    if options.retry_failed:
        retry_failed(runs, options)
    if options.cancel:
        print(f"{cancel_all(runs)} jobs cancelled")
    return watch(runs) if options.watch else print_states(runs)
