"""Cells as job arrays: the work of run_all --slurm, --retry-failed and --cancel.

There is one array for each size of job. Cells wait for the arrays that extract their features and
train their classifier, and do both themselves if these fail. A last job writes the tables once all
others have ended.
"""

import math
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.cluster.cell_status import (
    FILE,
    Submission,
    new_folder,
    read_submission,
    submissions,
    submitted_states,
)
from benchmarks.execution.jobs import (
    arguments_of,
    evaluations,
    extractions,
    joined,
    process_command,
)
from benchmarks.execution.states import StartedCell, versions
from benchmarks.planning.options import SlurmOptions
from benchmarks.planning.plan import PlannedCell
from benchmarks.results.records import grouped
from slurm.cluster import Cluster, ClusterError, ask, cluster
from slurm.requeue import Command
from slurm.resources import Queue, Resources
from slurm.state import job_states
from slurm.submit import Array, cancel_submitted, script, submit
from transfer.cells.cell import Cell, is_same_file
from transfer.tasks import task_of

GPUS_OF_A_NODE = 8
CPUS_PER_GPU = 8
"""Loader processes, and one to feed the GPU."""
MARGIN = 3.0
"""Factor on the estimated hours, which assume fast data and an idle node."""
LEAST_HOURS, MOST_HOURS = 1, 24
"""Range of a cell's time limit in h. A cell that needs longer saves at the limit, is queued again
and continues."""
NO_MORE_JOBS = ("MaxJobCount", "temporarily unavailable", "MaxSubmit", "job submit limit")
"""Words of sbatch where the cluster, an account or a user has as many jobs as it may have."""
TABLES_RESOURCES = Resources(cpus=1, hours=1)
JobCells = tuple[StartedCell, ...]
"""Cells of one job: those of one pass over images, or a single one."""
Arrays = Sequence[tuple[Array, Sequence[JobCells]]]
"""Arrays that will be submitted, with the cells of each job; none for arrays that only help."""


def with_cluster_gpus(cell: Cell, options: SlurmOptions) -> Cell:
    """Return the cell with a fixed number of GPUs, for the nodes and not the submitting machine.

    If not given, it is the largest number on a node that divides the batch into equal passes.
    """
    training = cell.settings.training
    schedule = replace_gpus(cell, 1).task.distributed_training
    if training.gpus or schedule is None:
        return cell
    batch = schedule.batch_size
    most = GPUS_OF_A_NODE if options.cell_gpus else 1
    passes = batch // training.images_per_gpu if training.images_per_gpu else batch
    return replace_gpus(cell, max(n for n in range(1, most + 1) if passes % n == 0))


def replace_gpus(cell: Cell, gpus: int) -> Cell:
    """Return the same cell on another number of GPUs; no number of its protocol changes."""
    training = replace(cell.settings.training, gpus=gpus)
    return cell.asking(settings=replace(cell.settings, training=training))


def resources(row: PlannedCell, options: SlurmOptions, where: Cluster) -> Resources:
    """Return the resources of one cell; options that are given take precedence."""
    task = row.cell.task
    processes = task.num_processes(row.cell.settings.training)
    gpus = processes if options.cell_gpus else 0
    if task.distributed_training is None:
        gpus = options.cell_gpus
    hours = math.ceil(MARGIN * row.gpu_hours / max(1, processes))
    return Resources(
        gpus=gpus,
        processes=1,  # a cell starts its own for its GPUs
        cpus=options.cpus or CPUS_PER_GPU * max(1, gpus),
        memory_gb=options.memory_gb,
        hours=options.hours or _allowed_hours(max(hours, LEAST_HOURS), options, where),
    )


def _allowed_hours(
    hours: float, options: SlurmOptions, where: Cluster, partition: str = ""
) -> float:
    """Return a time limit that no option sets, at most that of the partition."""
    allowed = where.most_minutes(partition or options.queue.partition) / 60
    return min(hours, MOST_HOURS, allowed)


def plan_arrays(
    rows: Sequence[PlannedCell],
    options: SlurmOptions,
    folder: Path,
    where: Cluster,
) -> Arrays:
    """Return the arrays for the rows in state "run"."""
    helpers: list[Array] = []
    extracted: dict[str, int] = {}
    for joint in (False, True):  # two arrays: other cells need not wait for the long joint pass
        jobs = [job for job in extractions(rows) if (job.cell.needed is not None) == joint]
        if jobs:
            cells = (cell for job in jobs for cell in job.cells)
            extracted |= {str(cell.path.absolute()): len(helpers) for cell in cells}
            longest = replace(jobs[0].rows[0], gpu_hours=max(job.hours for job in jobs))
            words = [job.arguments() for job in jobs]
            size = resources(longest, options, where)
            helpers.append(_array("extract", words, size, options))
    evaluating = []
    for job in evaluations(rows):
        size = resources(replace(job.rows[0], gpu_hours=job.hours), options, where)
        words = [arguments_of(cell) for cell in job.cells]
        pairs = zip(job.cells, words, strict=True)
        evaluating.append(tuple(StartedCell.of(c, words=w, resources=size) for c, w in pairs))
    return _with_cells(helpers, evaluating, extracted, options, folder, where)


def _with_cells(
    helpers: Sequence[Array],
    jobs: Iterable[JobCells],
    extracted: Mapping[str, int],
    options: SlurmOptions,
    folder: Path,
    where: Cluster,
) -> Arrays:
    """Return the helpers, the arrays of these jobs, and last the one that writes the tables.

    Jobs of an array have one size and wait for the same: the helper that extracts their features
    and, if they use a classifier, all arrays that train any. Those must come before.
    extracted: places of helpers by record.
    """
    jobs = list(jobs)
    used = {task_of(cell.key).needs for cells in jobs for cell in cells}
    groups: dict[tuple[Resources, int | None, bool, bool], list[JobCells]] = {}
    for cells in jobs:
        first = cells[0]
        trains, uses = any(cell.key in used for cell in cells), bool(task_of(first.key).needs)
        group = (first.resources, extracted.get(first.record), trains, uses)
        groups.setdefault(group, []).append(cells)
    arrays: list[tuple[Array, Sequence[JobCells]]] = [(helper, ()) for helper in helpers]
    training: tuple[int, ...] = ()
    for (size, extraction, trains, uses), members in groups.items():
        after = training * uses if extraction is None else (extraction, *training * uses)
        training += (len(arrays),) * trains
        words = [joined(cell.words for cell in cells) for cells in members]
        arrays.append((_array("cells", words, size, options, after), members))
    hours = _allowed_hours(TABLES_RESOURCES.hours, options, where, options.tables_partition)
    collect = (sys.executable, "-m", "benchmarks.cluster.cell_status", str(folder / FILE))
    tables = Array(
        name="tables",
        work=(Command(collect),),
        resources=replace(TABLES_RESOURCES, hours=hours),
        after=tuple(range(len(arrays))),
        partition=options.tables_partition,
    )
    return [*arrays, (tables, ())]


def _array(
    name: str,
    words: Iterable[Sequence[str]],
    size: Resources,
    options: SlurmOptions,
    after: tuple[int, ...] = (),
) -> Array:
    """Return an array of processes with these arguments."""
    work = tuple(Command(process_command(each)) for each in words)
    return Array(name=name, work=work, resources=size, parallel=options.parallel, after=after)


def check_submitted_weights(rows: Sequence[PlannedCell], runs: Path) -> None:
    """Raise ValueError if jobs that have not ended evaluate other weights under a row's name.

    They have no records yet, by which `check_records_of_name` would know them.
    """
    going = [one.cell for one in submitted_states(runs)[0] if one.state in ("queued", "running")]
    for cell in {row.cell.backbone.name: row.cell for row in rows if row.state == "run"}.values():
        backbone = cell.backbone
        folder = (cell.records / backbone.name).resolve()
        for other in going:
            # submissions of earlier versions do not store it
            sha256 = other.described.get("sha256", backbone.sha256)
            if sha256 == backbone.sha256 or is_same_file(other.described, backbone):
                continue
            if folder in Path(other.identity).parents:
                raise ValueError(
                    f"job {other.job} is queued or running and evaluates other weights under the "
                    f"name {backbone.name}: hash {sha256[:12]}, and this checkpoint's is "
                    f"{backbone.sha256[:12]}. Give this checkpoint another --name"
                )


def submit_cells(
    rows: Sequence[PlannedCell],
    options: SlurmOptions,
    runs: Path,
    where: Cluster,
) -> Submission | None:
    """Submit the cells in state "run" that are not queued or running; None if there are none."""
    states = submitted_states(runs)[0]
    under_way = {one.cell.identity for one in states if one.state in ("queued", "running")}
    new = [row for row in rows if str(row.cell.path.resolve()) not in under_way]
    if len(new) < len(rows):
        count = len(rows) - len(new)
        place = "" if runs == Path("runs") else f" --runs {shlex.quote(str(runs))}"
        print(
            f"{count} {'cell is' if count == 1 else 'cells are'} queued or running already, "
            "whatever their other options are: python -m benchmarks.status shows them, "
            f"run_all.py --cancel{place} takes away all that have not ended",
            file=sys.stderr,
        )
    if not any(row.state == "run" for row in new):
        return None
    folder = new_folder(runs)
    results = str(new[0].cell.settings.results.absolute())
    arrays = plan_arrays(new, options, folder, where)
    return _submit_arrays(arrays, options, folder, where, results)


def _submit_arrays(
    arrays: Arrays, options: SlurmOptions, folder: Path, where: Cluster, results: str
) -> Submission:
    """Submit the arrays and write the submission file; ClusterError if it cannot be written."""
    try:
        jobs = submit([array for array, _ in arrays], options.queue, folder, where)
    except ClusterError as error:
        if any(word in str(error) for word in NO_MORE_JOBS):
            raise ClusterError(
                f"{error}. The cluster takes no more jobs at present: submit fewer --tasks at a "
                "time, or wait until other jobs have ended"
            ) from error
        raise
    cells: list[StartedCell] = []
    helpers: list[str] = []
    for (_, members), ids in zip(arrays, jobs, strict=True):
        helpers += [] if members else ids
        for together, job in zip(members, ids, strict=False):  # helpers have no cells
            cells += [replace(cell, job=job, folder=str(folder)) for cell in together]
    submission = Submission(
        folder=folder,
        results=results,
        parallel=options.parallel,
        queue=options.queue,
        tables_partition=options.tables_partition,
        cells=tuple(cells),
        helpers=tuple(helpers),
    )
    try:
        path = submission.save()
    except OSError as error:  # without the file, the next run would submit the same cells again
        raise ClusterError(f"{error}; {cancel_submitted(folder, jobs)}") from error
    print(
        f"cells submitted: {len(submission.cells)}; jobs "
        f"{', '.join(dict.fromkeys(ids[0].partition('_')[0] for ids in jobs))}  ->  {path}\n"
        f"No process needs to stay open; python -m benchmarks.status shows the states"
    )
    return submission


def sbatch_scripts(
    rows: Sequence[PlannedCell],
    options: SlurmOptions,
    runs: Path,
    where: Cluster,
) -> str:
    """Return the scripts that sbatch would get."""
    folder = (runs / "slurm" / "WHEN").absolute()
    return "\n\n".join(
        f"# {array.name}: {len(array.work)} jobs\n{script(array, options.queue, folder)}"
        for array, _ in plan_arrays(rows, options, folder, where)
    )


def retry_failed(runs: Path, options: SlurmOptions) -> list[Submission]:
    """Submit the failed and cancelled cells again; return the new submissions.

    They keep the resources of their first submission, except where an option is given.
    """
    where = cluster()
    lost = [one.cell for one in submitted_states(runs)[0] if one.state in ("failed", "cancelled")]
    again = grouped((cell.folder, cell) for cell in lost)
    return [_retry(failed, options, runs, where) for failed in again.values()]


def _retry(
    failed: Sequence[StartedCell], options: SlurmOptions, runs: Path, where: Cluster
) -> Submission:
    """Submit these cells of one submission again, as a new submission."""
    old = read_submission(Path(failed[0].folder) / FILE)
    options = merge_options(options, old)
    given = {name: getattr(options, name) for name in ("hours", "cpus", "memory_gb")}
    changes = {name: value for name, value in given.items() if value}
    jobs: dict[str, list[StartedCell]] = {}  # cells of one pass over images have one job
    for cell in sorted(failed, key=lambda cell: bool(task_of(cell.key).needs)):
        size = replace(cell.resources, **changes)
        fresh = replace(cell, resources=size, before=versions(Path(cell.record)))
        jobs.setdefault(cell.job, []).append(fresh)
    folder = new_folder(runs)
    arrays = _with_cells([], map(tuple, jobs.values()), {}, options, folder, where)
    return _submit_arrays(arrays, options, folder, where, old.results)


def merge_options(options: SlurmOptions, old: Submission) -> SlurmOptions:
    """Return the options given now, completed by those of the old submission."""
    defaults = vars(Queue())
    changed = {name: new for name, new in vars(options.queue).items() if new != defaults[name]}
    return replace(
        options,
        queue=replace(old.queue, **changed),
        parallel=options.parallel or old.parallel,
        tables_partition=options.tables_partition or old.tables_partition,
    )


def cancel_all(runs: Path) -> int:
    """Cancel every job that has not ended; return how many."""
    every = [(*one.helpers, *(cell.job for cell in one.cells)) for one in submissions(runs)]
    jobs = list(dict.fromkeys(job for some in every for job in some))  # one job for a pass's cells
    known = job_states(jobs)
    going = [job for job in jobs if job in known and known[job].stage != "ended"]
    if going:
        ask("scancel", *going)
    return len(going)
