"""Run cells as job arrays, for run_all --slurm, --retry-failed and --cancel.

There is one array per job size. Cells wait for the arrays that train their classifiers. A final job
writes the tables once all others have ended: python -m benchmarks.cluster.arrays RESULTS. The state
file of each cell stores its job, its log and the options of its submission.
"""

import math
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.execution.graph import Job, job_graph
from benchmarks.execution.states import all_states, render_states
from benchmarks.planning.options import SlurmOptions
from benchmarks.planning.plan import (
    PlannedCell,
    plan_cell,
    with_classifiers,
    with_jobs_and_hours,
)
from benchmarks.words import grouped, plural
from pretrain.running.atomic_files import WriteError, explain_write_errors
from pretrain.running.errors import SuiteError
from pretrain.running.processes import assume_gpus
from slurm.cluster import Cluster, ClusterError, ask, cluster
from slurm.requeue import Command
from slurm.resources import Queue, RequestError, Resources
from slurm.state import job_states, log_path
from slurm.submit import Array, cancel_submitted, script, submit, unique_name
from transfer.cells import state
from transfer.cells.cell import Cell, open_checkpoint
from transfer.cells.job import command, write_job
from transfer.cells.request import Request, Settings, from_json, to_json
from transfer.cells.state import read_states
from transfer.hours import Measured, measured_seconds
from transfer.record import state_path
from transfer.tasks import task_of

GPUS_OF_A_NODE = 8
CPUS_PER_GPU = 8
"""Loader processes, and one process that feeds the GPU."""
MARGIN = 3.0
"""Factor on the estimates, which assume fast storage and an idle node."""
MIN_HOURS, MAX_HOURS = 1, 24
"""Range of a cell's time limit in h. A cell that needs longer saves at the limit, is queued again,
and resumes."""
JOB_LIMIT_ERRORS = ("MaxJobCount", "temporarily unavailable", "MaxSubmit", "job submit limit")
"""Phrases in errors of sbatch if there are too many jobs."""
MAX_NAMES = 3
"""Maximum number of checkpoints and task groups in an array's name."""
TABLES_RESOURCES = Resources(cpus=1, hours=1)
Arrays = Sequence[tuple[Array, Sequence[Job]]]
"""Arrays to submit, with the jobs of their elements."""


def plan_on_cluster(
    cells: Sequence[Cell], options: SlurmOptions, measured: Measured
) -> list[PlannedCell]:
    """Return the plan of cells, with the GPUs and hours of the cluster's jobs."""
    planned = [plan_cell(with_cluster_gpus(cell, options), measured) for cell in cells]
    cores, processes = num_cpus(options, options.cell_gpus), options.parallel or len(cells)
    return with_jobs_and_hours(with_classifiers(planned), cores, processes)


def with_cluster_gpus(cell: Cell, options: SlurmOptions) -> Cell:
    """Return the cell with a number of GPUs for the cluster's nodes.

    The default is the largest number of GPUs of a node that divides the batch into equal
    micro-batches.
    """
    training = cell.settings.training
    schedule = replace_gpus(cell, 1).task.distributed_training
    if training.gpus or schedule is None:
        return cell
    batch = schedule.batch_size
    max_gpus = GPUS_OF_A_NODE if options.cell_gpus else 1
    micro_batches = batch // training.images_per_gpu if training.images_per_gpu else batch
    return replace_gpus(cell, max(n for n in range(1, max_gpus + 1) if micro_batches % n == 0))


def replace_gpus(cell: Cell, gpus: int) -> Cell:
    """Return the cell with another number of GPUs but the same protocol."""
    training = replace(cell.settings.training, gpus=gpus)
    return cell.with_request(settings=replace(cell.settings, training=training))


def resources(job: Job, options: SlurmOptions, site: Cluster) -> Resources:
    """Return the resources of a job; the user's options take precedence."""
    task = job.cell.task
    processes = task.num_processes(job.cell.settings.training)
    gpus = processes if options.cell_gpus else 0
    if task.distributed_training is None:
        gpus = options.cell_gpus
    hours = math.ceil(MARGIN * job.hours / max(1, processes))
    return Resources(
        gpus=gpus,
        processes=1,  # a cell starts further processes itself
        cpus=num_cpus(options, gpus),
        memory_gb=options.memory_gb,
        hours=options.hours or _allowed_hours(max(hours, MIN_HOURS), options, site),
    )


def num_cpus(options: SlurmOptions, gpus: int) -> int:
    """Return the number of CPU cores per job."""
    return options.cpus or CPUS_PER_GPU * max(1, gpus)


def _allowed_hours(
    hours: float, options: SlurmOptions, site: Cluster, partition: str = ""
) -> float:
    """Return the default time limit, at most the partition's."""
    allowed = site.max_minutes(partition or options.queue.partition) / 60
    return min(hours, MAX_HOURS, allowed)


def plan_arrays(jobs: Sequence[Job], options: SlurmOptions, folder: Path, site: Cluster) -> Arrays:
    """Return the arrays of jobs, and the array that writes the tables.

    Jobs with the same resources and dependencies form one array; the array of the tables is last.
    The files of the jobs are in the folder, named after the array and the index in it. RequestError
    if a job has more GPUs than --max-gpus.
    """
    groups: dict[tuple[Resources, tuple[int, ...]], list[Job]] = {}
    array_of: dict[Job, int] = {}
    for job in jobs:  # dependencies come first
        dependencies = tuple(sorted({array_of[dependency] for dependency in job.dependencies}))
        group = (resources(job, options, site), dependencies)
        groups.setdefault(group, []).append(job)
        array_of[job] = list(groups).index(group)
    arrays: list[tuple[Array, Sequence[Job]]] = []
    for number, ((size, dependencies), members) in enumerate(groups.items()):
        files = [folder / f"{number}-{index}.json" for index in range(len(members))]
        array = Array(
            name=_array_name(members),
            commands=tuple(Command(command(file)[1:], of_python=True) for file in files),
            resources=size,
            parallel=_parallel_jobs(members[0], size.gpus, options),
            dependencies=dependencies,
        )
        arrays.append((array, members))
    results = jobs[0].cell.settings.results.absolute()
    hours = _allowed_hours(TABLES_RESOURCES.hours, options, site, options.tables_partition)
    tables = Array(
        name="tables",
        commands=(Command(("-m", "benchmarks.cluster.arrays", str(results)), of_python=True),),
        resources=replace(TABLES_RESOURCES, hours=hours),
        dependencies=tuple(range(len(arrays))),
        partition=options.tables_partition,
    )
    return [*arrays, (tables, ())]


def _array_name(jobs: Sequence[Job]) -> str:
    """Return the checkpoints and task groups, such as mine+moco:Linear-probes."""
    cells = [cell for job in jobs for cell in job.cells]
    joined = []
    for names in ([c.backbone.name for c in cells], [c.task.heading for c in cells]):
        first, num_more = [*dict.fromkeys(names)][:MAX_NAMES], len({*names}) - MAX_NAMES
        joined.append("+".join([*first, f"{num_more} more"] if num_more > 0 else first))
    return ":".join(joined).replace(" ", "-")


def _parallel_jobs(job: Job, gpus: int, options: SlurmOptions) -> int:
    """Return the maximum number of parallel jobs; 0 for no limit."""
    if not (options.max_gpus and gpus):
        return options.parallel
    if gpus > options.max_gpus:
        raise RequestError(
            f"--max-gpus {options.max_gpus}: {job.cell.key} trains on {gpus} GPUs. Pass a larger "
            f"number, or --gpus {options.max_gpus} to train on fewer"
        )
    jobs = options.max_gpus // gpus
    return min(options.parallel, jobs) if options.parallel else jobs


def gpus_at_a_time(rows: Sequence[PlannedCell], options: SlurmOptions, site: Cluster) -> list[str]:
    """Return a line with the limit of GPUs in use, if any."""
    jobs = job_graph(rows)
    if not (options.max_gpus and jobs):
        return []
    arrays = [array for array, _ in plan_arrays(jobs, options, Path(), site)]
    used = [
        min(len(array.commands), array.parallel) * array.resources.gpus for array in arrays[:-1]
    ]
    limits = f" = {' + '.join(map(str, used))}, a limit for each array" if len(used) > 1 else ""
    return [f"GPUs at a time: at most {sum(used)}{limits}"]


def submit_cells(rows: Sequence[PlannedCell], options: SlurmOptions, site: Cluster) -> int:
    """Submit the cells in state "run" and return their number.

    Cells that are already queued or running are not submitted again.
    ClusterError if the cluster refuses them, or if their states cannot be written.
    """
    settings = rows[0].cell.settings
    unfinished = {
        state.stored.path.resolve()
        for state in all_states(settings.results)[0]
        if state.name in ("queued", "running")
    }
    new = [row for row in rows if state_path(row.cell.path).resolve() not in unfinished]
    if len(new) < len(rows):
        print(
            f"{plural(len(rows) - len(new), 'evaluation')} already queued or running, perhaps with "
            "other options. To list them: run_all.py --status. To cancel all unfinished "
            f"ones: run_all.py {shlex.join(['--cancel', '--results', str(settings.results)])}",
            file=sys.stderr,
        )
    if not (jobs := job_graph(new)):
        return 0
    folder = _submission_folder(settings, options, unique_name())
    with explain_write_errors(folder, "--log-folder" if options.log_folder else "--runs"):
        folder.mkdir(parents=True)
    arrays = plan_arrays(jobs, options, folder, site)
    for number, (_, members) in enumerate(arrays):
        for index, job in enumerate(members):
            write_job(folder / f"{number}-{index}.json", job.requests)
    try:
        ids = submit([array for array, _ in arrays], options.queue, folder, site)
    except ClusterError as error:
        if any(phrase in str(error) for phrase in JOB_LIMIT_ERRORS):
            raise ClusterError(
                f"{error}. The cluster accepts no more jobs now. Submit fewer --tasks at a time, "
                "or wait until other jobs have ended"
            ) from error
        raise
    count = 0
    try:
        for (_, members), numbers in zip(arrays, ids, strict=True):
            # not strict, since the array of the tables has no jobs with cells
            for job, slurm_id in zip(members, numbers, strict=False):
                for cell in job.cells:
                    _write_submitted(cell, slurm_id, folder, options)
                    count += 1
    except WriteError as error:  # without states, the next run would submit the cells again
        raise ClusterError(f"{error}; {cancel_submitted(folder, ids)}") from error
    masters = dict.fromkeys(number.partition("_")[0] for numbers in ids for number in numbers)
    print(
        f"evaluations submitted: {count}; jobs {', '.join(masters)}  ->  {folder}"
        "\nNo process needs to stay open. To show the states: run_all.py --status"
    )
    return count


def _submission_folder(settings: Settings, options: SlurmOptions, name: str) -> Path:
    """Return the folder for logs and job files of one submission."""
    logs = Path(options.log_folder) if options.log_folder else settings.runs / "slurm"
    return (logs / name).absolute()


def _write_submitted(cell: Cell, job: str, folder: Path, options: SlurmOptions) -> None:
    """Write the state of a submitted cell.

    The state is "queued", or unchanged if the job has already started.
    Also create a link with the cell's name to the log of the job, which has a number as its name.
    """
    name = cell.path.relative_to(cell.records).with_suffix("")
    log = folder / f"{'.'.join(name.parts)}.err"  # a task's name may have a slash
    with explain_write_errors(log, "--log-folder" if options.log_folder else "--runs"):
        log.symlink_to(log_path(folder, job).name)
    submission: dict[str, Any] = {"job": job, "log": str(log), "cluster": to_json(options)}
    earlier = state.read_state(state_path(cell.path))
    if earlier is not None and earlier.content["job"] == job:
        state.store(earlier.path, earlier.content | submission)
    else:
        state.store(state_path(cell.path), state.content(cell, "queued") | submission)


def sbatch_scripts(rows: Sequence[PlannedCell], options: SlurmOptions, site: Cluster) -> str:
    """Return the sbatch scripts, each after comments with its jobs and cells."""
    if not (jobs := job_graph(rows)):
        return ""
    folder = _submission_folder(rows[0].cell.settings, options, "WHEN")
    scripts = []
    for array, members in plan_arrays(jobs, options, folder, site):
        comments = [f"# {array.name}: {len(array.commands)} jobs"]
        for index, job in enumerate(members):
            cells = (f"{cell.backbone.name} {cell.key} seed {cell.seed}" for cell in job.cells)
            comments.append(f"# job {index} runs {', '.join(cells)}")
        scripts.append("\n".join([*comments, script(array, options.queue, folder)]))
    return "\n\n".join(scripts)


def retry_failed(results: Path, options: SlurmOptions) -> int:
    """Submit the failed and cancelled cells again; return their number.

    They keep the options of their first submission, unless an option is given now. For each cell
    that cannot be submitted, such as one without its checkpoint, the reason is printed.
    """
    site, count = cluster(), 0
    states = [
        state.stored for state in all_states(results)[0] if state.name in ("failed", "cancelled")
    ]
    submissions = grouped(
        (Path(state.content["log"]).parent, state) for state in states if state.is_submitted
    )
    for failed in submissions.values():
        cells = []
        for earlier in failed:
            request = from_json(Request, earlier.content["request"])
            # the folder may have been moved
            settings = replace(request.settings, results=results.absolute())
            try:
                task_of(request.task)  # TaskError if its plugin is not installed
                cells.append(_without_weights(replace(request, settings=settings)))
            except (SuiteError, OSError) as error:
                _print_not_submitted(earlier.content["backbone"], earlier.key, str(error))
        if not cells:
            continue
        merged = merge_options(options, from_json(SlurmOptions, failed[0].content["cluster"]))
        with assume_gpus(0):  # the GPUs of this machine must not change the protocol
            rows = plan_on_cluster(cells, merged, measured_seconds(cells[0].settings.runs))
        for row in rows:
            if row.state == "cached":  # its job was killed after it had written the record
                state.note_finished(row.cell)
            elif row.state != "run":
                reason = row.reason or ", ".join(row.missing)
                _print_not_submitted(row.cell.backbone.name, row.cell.key, f"{row.state}: {reason}")
        count += submit_cells(rows, merged, site)
    return count


def _print_not_submitted(backbone: str, key: str, reason: str) -> None:
    print(f"{backbone} {key}: not submitted: {reason}", file=sys.stderr)


def _without_weights(request: Request) -> Cell:
    """Return the cell of a request without weights, for a plan."""
    return Cell(
        request=request, backbone=replace(open_checkpoint(request.checkpoint), state_dict={})
    )


def merge_options(options: SlurmOptions, earlier: SlurmOptions) -> SlurmOptions:
    """Return the earlier options, overridden by options that are given now."""
    names = ("parallel", "max_gpus", "hours", "cpus", "memory_gb", "tables_partition", "log_folder")
    overrides = {name: getattr(options, name) for name in names if getattr(options, name)}
    defaults = vars(Queue())
    changed = {name: new for name, new in vars(options.queue).items() if new != defaults[name]}
    return replace(earlier, queue=replace(earlier.queue, **changed), **overrides)


def cancel_all(results: Path) -> int:
    """Cancel all unfinished jobs of cells; return their number.

    The job that writes the tables then runs, since all jobs before it have ended.
    """
    submitted = [state.content["job"] for state in read_states(results) if state.is_submitted]
    jobs = list(dict.fromkeys(submitted))  # a job may have several cells
    states = job_states(jobs)
    unfinished = [job for job in jobs if job in states and states[job].stage != "ended"]
    if unfinished:
        ask("scancel", *unfinished)
    return len(unfinished)


def collect(results: Path) -> int:
    """Write tables and report, even of incomplete results.

    The final job of a submission calls this. First, the failures of killed cells are written to
    their state files. Returns 1 if the tables or the report cannot be written, otherwise 0.
    """
    from benchmarks.report import update_report  # the other functions need neither
    from benchmarks.tables import update_tables

    states, _ = all_states(results)
    for cell_state in states:
        stored = cell_state.stored
        if cell_state.name == "failed" and stored.name != "failed":
            failed = {"state": "failed", "reason": cell_state.detail}
            with suppress(WriteError):  # the tables report a full disk
                state.store(stored.path, stored.content | failed)
    print(render_states(states))
    contents = update_tables(results)
    is_reported = update_report(results, contents=contents)
    return int(contents is None or not is_reported)


if __name__ == "__main__":
    sys.exit(collect(Path(sys.argv[1])))
