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

from benchmarks.cluster.cell_status import CellStatus, statuses
from benchmarks.cluster.submission import (
    FILE,
    Submission,
    SubmittedCell,
    new_folder,
    submissions,
    submitted_cell,
    versions,
)
from benchmarks.cluster.watch import print_states, watch
from benchmarks.execution.one_cell import (
    arguments_of,
    arguments_of_all,
    preparation_arguments,
    process_command,
)
from benchmarks.planning.checkpoints import Origins
from benchmarks.planning.cluster_resources import resources
from benchmarks.planning.options import SlurmOptions
from benchmarks.planning.plan import (
    PlannedCell,
    groups_sharing_features,
    groups_sharing_passes,
    without_cells,
)
from slurm.cluster import Cluster, ClusterError, cluster
from slurm.requeue import Command
from slurm.resources import Queue, Resources
from slurm.state import cancel, job_states
from slurm.submit import Array, cancel_submitted, script, submit
from transfer.tasks import task_of

TABLES_RESOURCES = Resources(cpus=1, hours=1)
ArrayKind = tuple[Resources, tuple[int, ...], bool, bool]
"""Properties that the cells of an array share: their resources, the indices of the arrays that
extract their features, whether they train a classifier that others use, whether they use one."""

JobCells = tuple[SubmittedCell, ...]
"""Cells of one job: those of one pass over images, or a single one."""


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
    waiting = [row for row in rows if row.state == "run"]
    arrays: list[Array] = []
    cells: list[tuple[JobCells, ...]] = []
    extracted: dict[int, tuple[int, ...]] = {}
    for joint in (False, True):  # two arrays: other cells need not wait for the long joint pass
        groups = [
            g for g in groups_sharing_features(waiting) if (g[0].cell.needed is not None) == joint
        ]
        if groups:
            extracted |= {id(row): (len(arrays),) for group in groups for row in group}
            arrays.append(_extraction_array(groups, origins, options))
            cells.append(())
    needed = {row.cell.needed.path for row in waiting if row.cell.needed is not None}
    sizes: dict[ArrayKind, list[JobCells]] = {}
    passes = groups_sharing_passes(waiting)
    for group in sorted(passes, key=lambda group: group[0].cell.needed is not None):
        hours = sum(row.gpu_hours for row in group)
        requested = resources(replace(group[0], gpu_hours=hours), options)
        after = extracted.get(id(group[0]), ())
        trains = any(row.cell.path in needed for row in group)
        kind = (requested, after, trains, group[0].cell.needed is not None)
        job = tuple(
            submitted_cell(row.cell, arguments_of(row.cell, origins), requested) for row in group
        )
        sizes.setdefault(kind, []).append(job)
    arrays += _cell_arrays(sizes, options.parallel, len(arrays))
    cells += map(tuple, sizes.values())
    tables = _tables_array(len(arrays), folder, options.tables_partition)
    return ArrayPlan((*arrays, tables), (*cells, ()))


def _extraction_array(
    groups: Sequence[Sequence[PlannedCell]], origins: Origins, options: SlurmOptions
) -> Array:
    """Return an array with a job for each group of cells that share features.

    Extraction is most of the work of the cells that wait. So the estimated hours of a job are the
    sum, over its backbones, of the longest of their cells.
    """
    work = []
    hours = 0.0
    for group in groups:
        words = preparation_arguments([row.cell for row in group], origins)
        work.append(Command(process_command(words)))
        longest: dict[str, float] = {}
        for row in group:
            sha256 = row.cell.backbone.sha256
            longest[sha256] = max(row.gpu_hours, longest.get(sha256, 0.0))
        hours = max(hours, sum(longest.values()))
    requested = resources(replace(groups[0][0], gpu_hours=hours), options)
    return Array(name="extract", work=tuple(work), resources=requested, parallel=options.parallel)


def _cell_arrays(
    sizes: Mapping[ArrayKind, Sequence[JobCells]], parallel: int, num_before: int = 0
) -> list[Array]:
    """Return an array for each kind; arrays that use classifiers wait for all that train any.

    sizes: kinds in order; those that train classifiers come before those that use them.
    num_before: number of arrays that precede these in the plan and extract features.
    """
    arrays: list[Array] = []
    training: tuple[int, ...] = ()
    for (requested, extracted, trains, uses), members in sizes.items():
        after = extracted + training * uses
        training += (num_before + len(arrays),) * trains
        work = tuple(
            Command(process_command(arguments_of_all(cell.words for cell in job)))
            for job in members
        )
        arrays.append(
            Array(name="cells", work=work, resources=requested, parallel=parallel, after=after)
        )
    return arrays


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
    used = {status.cell.key: _needed_classifier(status.cell.key) for status in failed}
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
        keys = {status.cell.key for status in job}
        trains = not keys.isdisjoint(used.values())
        kind: ArrayKind = (requested, (), trains, bool(used[job[0].cell.key]))
        sizes.setdefault(kind, []).append(fresh)
    arrays = _cell_arrays(sizes, options.parallel)
    tables = _tables_array(len(arrays), folder, options.tables_partition)
    plan = ArrayPlan((*arrays, tables), (*(tuple(members) for members in sizes.values()), ()))
    return _submit_plan(plan, options, folder, where, Path(old.results))


def _by_job(statuses: Sequence[CellStatus]) -> list[list[CellStatus]]:
    """Return the cells of each job, which read the same pass over images."""
    jobs: dict[str, list[CellStatus]] = {}
    for status in statuses:
        jobs.setdefault(status.cell.job, []).append(status)
    return list(jobs.values())


def _needed_classifier(key: str) -> str:
    """Return the key of the task that trains this task's classifier; empty if it uses none."""
    return task_of(key).needs


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
