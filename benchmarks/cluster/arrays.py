"""Cells as job arrays: what run_all --slurm, --retry-failed and --cancel do.

One array for each size of job. Cells that look at one data set through one backbone share features;
these wait for a first array that extracts them, and go on without it should it fail. So do cells
that use a classifier: of several backbones, all their features are one pass over the images. They
also wait for the array that trains it, and train it themselves should that fail. A last job makes
the tables once all have ended.
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
from benchmarks.execution.one_cell import preparation, program, words_of
from benchmarks.planning.checkpoints import Origins
from benchmarks.planning.cluster_resources import resources
from benchmarks.planning.plan import PlannedCell, shared
from benchmarks.planning.slurm_options import SlurmOptions
from slurm.cluster import Cluster, ClusterError, cluster
from slurm.requeue import Command
from slurm.resources import Queue, Resources
from slurm.state import cancel, job_states
from slurm.submit import Array, cancel_submitted, script, submit
from transfer.tasks import task_of

TABLES = Resources(cpus=1, hours=1)
Kind = tuple[Resources, tuple[int, ...], bool, bool]
"""Of the cells of an array: what they ask for; the arrays that extract their features; whether they
train a classifier that others wait for, use one."""


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
    arrays: list[Array] = []
    cells: list[tuple[SubmittedCell, ...]] = []
    extracted: dict[int, tuple[int, ...]] = {}
    for together in (False, True):  # nobody else waits for the long pass of many backbones
        groups = [g for g in shared(waiting) if (g[0].cell.needed is not None) == together]
        if groups:
            extracted |= {id(row): (len(arrays),) for group in groups for row in group}
            arrays.append(_extraction(groups, origins, options))
            cells.append(())
    needed = {row.cell.needed.path for row in waiting if row.cell.needed is not None}
    sizes: dict[Kind, list[SubmittedCell]] = {}
    for row in sorted(waiting, key=lambda row: row.cell.needed is not None):
        asked, cell = resources(row, options), row.cell
        after = extracted.get(id(row), ())
        kind = (asked, after, cell.path in needed, cell.needed is not None)
        words = words_of(cell, origins)
        sizes.setdefault(kind, []).append(submitted_cell(cell, words, asked))
    arrays += _arrays(sizes, options.parallel, len(arrays))
    cells += map(tuple, sizes.values())
    tables = _tables(len(arrays), folder, options.tables_partition)
    return Plan((*arrays, tables), (*cells, ()))


def _extraction(
    groups: Sequence[Sequence[PlannedCell]], origins: Origins, options: SlurmOptions
) -> Array:
    """A job for each group of cells that share features, which prepares every task once.

    Each may take as long as the longest of the cells that wait, of each of its backbones: their
    work is mostly this.
    """
    work = []
    hours = 0.0
    for group in groups:
        words = preparation([row.cell for row in group], origins)
        work.append(Command(program(words)))
        longest: dict[str, float] = {}
        for row in group:
            sha256 = row.cell.backbone.sha256
            longest[sha256] = max(row.gpu_hours, longest.get(sha256, 0.0))
        hours = max(hours, sum(longest.values()))
    asked = resources(replace(groups[0][0], gpu_hours=hours), options)
    return Array(name="extract", work=tuple(work), resources=asked, parallel=options.parallel)


def _arrays(
    sizes: Mapping[Kind, Sequence[SubmittedCell]], parallel: int, num_before: int = 0
) -> list[Array]:
    """One for each kind; those that use classifiers wait for those before them that train some.

    num_before: arrays that stand before them, which extract features.
    """
    arrays: list[Array] = []
    training: tuple[int, ...] = ()
    for (asked, extracted, trains, uses), members in sizes.items():
        after = extracted + training * uses
        training += (num_before + len(arrays),) * trains
        work = tuple(Command(program(cell.words)) for cell in members)
        arrays.append(
            Array(name="cells", work=work, resources=asked, parallel=parallel, after=after)
        )
    return arrays


def _tables(num_arrays: int, folder: Path, partition: str) -> Array:
    """Last of all, whatever became of the cells."""
    words = (sys.executable, "-m", "benchmarks.cluster.collect", str(folder / FILE))
    after = tuple(range(num_arrays))
    work = (Command(words),)
    return Array(name="tables", work=work, resources=TABLES, after=after, partition=partition)


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
    return _submitted(plan, options, folder, where, new[0].cell.place.results)


def _submitted(
    plan: Plan, options: SlurmOptions, folder: Path, where: Cluster, results: Path
) -> Submission:
    jobs = submit(plan.arrays, options.queue, folder, where)
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
        parallel=options.parallel,
        queue=options.queue,
        tables_partition=options.tables_partition,
        cells=cells,
        helpers=helpers,
    )
    try:
        path = submission.save()
    except OSError as error:  # jobs that nobody knows of would be submitted twice
        raise ClusterError(f"{error}; {cancel_submitted(folder, jobs)}") from error
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
    options = merged(options, old)
    folder = new_folder(runs)
    used = {status.cell.key: _classifier(status.cell.key) for status in found}
    sizes: dict[Kind, list[SubmittedCell]] = {}
    for status in sorted(found, key=lambda status: bool(used[status.cell.key])):
        key, asked = status.cell.key, status.cell.resources
        asked = replace(
            asked,
            hours=options.hours or asked.hours,
            cpus=options.cpus or asked.cpus,
            memory_gb=options.memory_gb or asked.memory_gb,
        )
        fresh = replace(
            status.cell, job="", resources=asked, before=versions(Path(status.cell.record))
        )
        kind: Kind = (asked, (), key in used.values(), bool(used[key]))
        sizes.setdefault(kind, []).append(fresh)
    arrays = _arrays(sizes, options.parallel)
    tables = _tables(len(arrays), folder, options.tables_partition)
    plan = Plan((*arrays, tables), (*(tuple(members) for members in sizes.values()), ()))
    return _submitted(plan, options, folder, where, Path(old.results))


def _classifier(key: str) -> str:
    """Key of the task that trains the classifier which this one uses; empty if it uses none."""
    return task_of(key).needs


def merged(options: SlurmOptions, old: Submission) -> SlurmOptions:
    """What was asked for at first, where nothing else is asked for now."""
    given = {
        spec.name: value
        for spec in fields(Queue)
        if (value := getattr(options.queue, spec.name)) != spec.default
    }
    return replace(
        options,
        queue=replace(old.queue, **given),
        parallel=options.parallel or old.parallel,
        tables_partition=options.tables_partition or old.tables_partition,
    )


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
