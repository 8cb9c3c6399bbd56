"""Cells as job arrays: what run_all --slurm, --retry-failed and --cancel do.

One array for each size of job. Cells that look at one data set through one backbone share features;
these wait for a first array that extracts them, and go on without it should it fail. Cells that use
a classifier wait for the array that trains it, and train it themselves should that fail. A last job
makes the tables once all have ended.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.cell_resources import resources
from benchmarks.checkpoints import Origins
from benchmarks.one_cell import PREPARE, program, words_of
from benchmarks.plan import PlannedCell
from benchmarks.slurm_options import SlurmOptions
from benchmarks.status import CellStatus, statuses
from benchmarks.submission import (
    FILE,
    Submission,
    SubmittedCell,
    new_folder,
    submissions,
    submitted_cell,
    versions,
)
from slurm.cluster import Cluster, cluster
from slurm.requeue import Command
from slurm.resources import Queue, Resources
from slurm.state import cancel, job_states
from slurm.submit import Array, script, submit
from transfer.cell import on_frozen_features

TABLES = Resources(cpus=1, hours=1)


@dataclass(frozen=True)
class Plan:
    """Arrays to be submitted, and the cells of each."""

    arrays: tuple[Array, ...]
    cells: tuple[tuple[SubmittedCell, ...], ...]
    """In the order of an array's work; none for those that help."""


def arranged(
    rows: Sequence[PlannedCell], origins: Origins, options: SlurmOptions, folder: Path
) -> Plan:
    """Arrays for the rows that are to run."""
    waiting = [row for row in rows if row.state == "run"]
    groups = shared(waiting)
    arrays: list[Array] = []
    cells: list[tuple[SubmittedCell, ...]] = []
    if groups:
        arrays.append(_extraction(groups, origins, options))
        cells.append(())
    sharing = {id(row) for group in groups for row in group}
    needed = {row.cell.needed.path for row in waiting if row.cell.needed is not None}
    sizes: dict[tuple[Resources, bool, bool, bool], list[SubmittedCell]] = {}
    for row in sorted(waiting, key=lambda row: row.cell.needed is not None):
        asked, cell = resources(row, options), row.cell
        kind = (asked, id(row) in sharing, cell.path in needed, cell.needed is not None)
        words = words_of(cell, origins)
        sizes.setdefault(kind, []).append(submitted_cell(cell, words, asked))
    training: tuple[int, ...] = ()
    for (asked, shares, trains, uses), members in sizes.items():
        after = (0,) * shares + training * uses
        training += (len(arrays),) * trains
        arrays.append(_array(members, asked, options.parallel, after))
        cells.append(tuple(members))
    return Plan((*arrays, _tables(len(arrays), folder)), (*cells, ()))


def shared(rows: Sequence[PlannedCell]) -> list[list[PlannedCell]]:
    """Rows of one backbone and one data set, where there are several that keep it frozen."""
    groups: dict[tuple[str, tuple[str, ...]], list[PlannedCell]] = {}
    for row in rows:
        if on_frozen_features(row.cell.task):
            key = (row.cell.backbone.sha256, row.cell.task.datasets())
            groups.setdefault(key, []).append(row)
    return [group for group in groups.values() if len(group) > 1]


def _extraction(
    groups: Sequence[Sequence[PlannedCell]], origins: Origins, options: SlurmOptions
) -> Array:
    """A job for each backbone and data set, which prepares every task once."""
    work = []
    for group in groups:
        cell = group[0].cell
        keys = ",".join(dict.fromkeys(row.cell.key for row in group))
        work.append(Command(program((PREPARE, keys, *words_of(cell, origins)[1:]))))
    asked = resources(groups[0][0], options)
    return Array(name="extract", work=tuple(work), resources=asked, parallel=options.parallel)


def _array(
    cells: Sequence[SubmittedCell], asked: Resources, parallel: int, after: tuple[int, ...]
) -> Array:
    work = tuple(Command(program(cell.words)) for cell in cells)
    return Array(name="cells", work=work, resources=asked, parallel=parallel, after=after)


def _tables(num_arrays: int, folder: Path) -> Array:
    """Last of all, whatever became of the cells."""
    words = (sys.executable, "-m", "benchmarks.collect", str(folder / FILE))
    after = tuple(range(num_arrays))
    return Array(name="tables", work=(Command(words),), resources=TABLES, after=after)


def submit_cells(
    rows: Sequence[PlannedCell],
    origins: Origins,
    options: SlurmOptions,
    runs: Path,
    where: Cluster,
) -> Submission | None:
    """Submit what is to run and neither waits nor runs already; None if there is nothing."""
    under_way = {
        status.cell.record: status
        for status in statuses(runs)[0]
        if status.state in ("queued", "running")
    }
    new = [row for row in rows if str(row.cell.path.absolute()) not in under_way]
    if len(new) < len(rows):
        told = len(rows) - len(new)
        print(f"{told} cells are submitted already: see --status", file=sys.stderr)
    if not any(row.state == "run" for row in new):
        return None
    folder = new_folder(runs)
    plan = arranged(new, origins, options, folder)
    results = new[0].cell.place.results
    return _submitted(plan, options.queue, folder, where, results, options.parallel)


def _submitted(
    plan: Plan, queue: Queue, folder: Path, where: Cluster, results: Path, parallel: int
) -> Submission:
    jobs = submit(plan.arrays, queue, folder, where)
    cells = tuple(
        replace(cell, job=job)
        for members, ids in zip(plan.cells, jobs, strict=True)
        for cell, job in zip(members, ids, strict=False)
    )
    helpers = tuple(
        job for members, ids in zip(plan.cells, jobs, strict=True) if not members for job in ids
    )
    submission = Submission(
        folder=folder,
        results=str(results.absolute()),
        parallel=parallel,
        queue=queue,
        cells=cells,
        helpers=helpers,
    )
    path = submission.save()
    print(
        f"{len(cells)} cells submitted as {len(plan.arrays) - 1} arrays, jobs "
        f"{', '.join(dict.fromkeys(ids[0].partition('_')[0] for ids in jobs))}  ->  {path}\n"
        f"Nothing needs to stay open. Where they are: run_all.py --status"
    )
    return submission


def scripts(
    rows: Sequence[PlannedCell], origins: Origins, options: SlurmOptions, runs: Path
) -> str:
    """What sbatch would be given."""
    folder = (runs / "slurm" / "WHEN").absolute()
    plan = arranged(rows, origins, options, folder)
    return "\n\n".join(
        f"# {array.name}: {len(array.work)} jobs\n{script(array, options.queue, folder)}"
        for array in plan.arrays
    )


def retry_failed(runs: Path, options: SlurmOptions) -> list[Submission]:
    """Submit again what failed or was cancelled, with the resources it had; options given win."""
    where = cluster(options.queue.partition)
    again: dict[Path, list[CellStatus]] = {}
    for status in statuses(runs)[0]:
        if status.state in ("failed", "cancelled"):
            again.setdefault(status.submission.folder, []).append(status)
    return [_retried(found, options, runs, where) for found in again.values()]


def _retried(
    found: Sequence[CellStatus], options: SlurmOptions, runs: Path, where: Cluster
) -> Submission:
    old = found[0].submission
    folder = new_folder(runs)
    sizes: dict[Resources, list[SubmittedCell]] = {}
    for status in found:
        asked = status.cell.resources
        asked = replace(
            asked,
            hours=options.hours or asked.hours,
            cpus=options.cpus or asked.cpus,
            memory_gb=options.memory_gb or asked.memory_gb,
        )
        fresh = replace(
            status.cell, job="", resources=asked, before=versions(Path(status.cell.record))
        )
        sizes.setdefault(asked, []).append(fresh)
    arrays = [_array(members, asked, old.parallel, ()) for asked, members in sizes.items()]
    plan = Plan((*arrays, _tables(len(arrays), folder)), (*(tuple(m) for m in sizes.values()), ()))
    queue = options.queue if options.queue != Queue() else old.queue
    return _submitted(plan, queue, folder, where, Path(old.results), old.parallel)


def cancel_all(runs: Path) -> int:
    """Take every job that has not ended from the cluster; how many."""
    jobs = [
        job
        for submission in submissions(runs)
        for job in (*submission.helpers, *(cell.job for cell in submission.cells))
    ]
    known = job_states(jobs)
    going = [job for job in jobs if job in known and known[job].stage != "ended"]
    cancel(going)
    return len(going)
