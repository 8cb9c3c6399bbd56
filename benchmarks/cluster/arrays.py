"""Cells as job arrays: the work of run_all --slurm, --retry-failed and --cancel.

There is one array for each size of job. Cells wait for the arrays that train their classifier. A
last job writes the tables once all others have ended: python -m benchmarks.cluster.arrays RESULTS.
The state file of each cell stores its job, its log and the options of its submission.
"""

import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.execution.graph import Job, job_graph
from benchmarks.execution.states import CellState, all_states, render_states
from benchmarks.planning.options import SlurmOptions
from benchmarks.planning.plan import (
    PlannedCell,
    plan_cell,
    with_classifiers,
    with_shared_work_counted_once,
)
from benchmarks.results.records import grouped
from pretrain.running.atomic_files import WriteError, explain_write_errors
from pretrain.running.processes import assume_gpus
from slurm.cluster import Cluster, ClusterError, ask, cluster
from slurm.requeue import Command
from slurm.resources import Queue, RequestError, Resources
from slurm.state import job_states, log_path
from slurm.submit import Array, cancel_submitted, script, submit, unique_name
from transfer.cells import state
from transfer.cells.cell import Cell, is_same_file, open_checkpoint
from transfer.cells.job import command, write_job
from transfer.cells.request import Request, Settings, from_json, to_json
from transfer.cells.state import read_states
from transfer.record import state_path

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
MOST_NAMES = 3
"""Checkpoints, and groups of tasks, in the name of an array."""
TABLES_RESOURCES = Resources(cpus=1, hours=1)
Arrays = Sequence[tuple[Array, Sequence[Job]]]
"""Arrays that will be submitted, with the job of each element; none for the tables."""


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
    return cell.with_request(settings=replace(cell.settings, training=training))


def resources(job: Job, options: SlurmOptions, where: Cluster) -> Resources:
    """Return the resources of a job; options that are given take precedence."""
    task = job.cell.task
    processes = task.num_processes(job.cell.settings.training)
    gpus = processes if options.cell_gpus else 0
    if task.distributed_training is None:
        gpus = options.cell_gpus
    hours = math.ceil(MARGIN * job.hours / max(1, processes))
    return Resources(
        gpus=gpus,
        processes=1,  # a cell starts its own for its GPUs
        cpus=num_cpus(options, gpus),
        memory_gb=options.memory_gb,
        hours=options.hours or _allowed_hours(max(hours, LEAST_HOURS), options, where),
    )


def num_cpus(options: SlurmOptions, gpus: int) -> int:
    """Return the number of cores of a job on so many GPUs."""
    return options.cpus or CPUS_PER_GPU * max(1, gpus)


def _allowed_hours(
    hours: float, options: SlurmOptions, where: Cluster, partition: str = ""
) -> float:
    """Return a time limit that no option sets, at most that of the partition."""
    allowed = where.most_minutes(partition or options.queue.partition) / 60
    return min(hours, MOST_HOURS, allowed)


def plan_arrays(jobs: Sequence[Job], options: SlurmOptions, folder: Path, where: Cluster) -> Arrays:
    """Return an array for the jobs of one size that wait for the same arrays; last, the tables.

    The file of a job is in the folder, named after its array and its position there. RequestError
    if a job has more GPUs than --max-gpus.
    """
    groups: dict[tuple[Resources, tuple[int, ...]], list[Job]] = {}
    array_of: dict[Job, int] = {}
    for job in jobs:  # those that it waits for come before it
        after = tuple(sorted({array_of[other] for other in job.after}))
        group = (resources(job, options, where), after)
        groups.setdefault(group, []).append(job)
        array_of[job] = list(groups).index(group)
    arrays: list[tuple[Array, Sequence[Job]]] = []
    for number, ((size, after), members) in enumerate(groups.items()):
        files = [folder / f"{number}-{index}.json" for index in range(len(members))]
        array = Array(
            name=_array_name(members),
            work=tuple(Command(command(file)[1:], of_python=True) for file in files),
            resources=size,
            parallel=_parallel_jobs(members[0], size.gpus, options),
            after=after,
        )
        arrays.append((array, members))
    results = jobs[0].cell.settings.results.absolute()
    hours = _allowed_hours(TABLES_RESOURCES.hours, options, where, options.tables_partition)
    tables = Array(
        name="tables",
        work=(Command(("-m", "benchmarks.cluster.arrays", str(results)), of_python=True),),
        resources=replace(TABLES_RESOURCES, hours=hours),
        after=tuple(range(len(arrays))),
        partition=options.tables_partition,
    )
    return [*arrays, (tables, ())]


def _array_name(jobs: Sequence[Job]) -> str:
    """Return checkpoints and groups of tasks, such as mine+moco:Linear-probes."""
    cells = [cell for job in jobs for cell in job.cells]
    parts = []
    for names in ([c.backbone.name for c in cells], [c.task.heading for c in cells]):
        first, more = [*dict.fromkeys(names)][:MOST_NAMES], len({*names}) - MOST_NAMES
        parts.append("+".join([*first, f"{more} more"] if more > 0 else first))
    return ":".join(parts).replace(" ", "-")


def _parallel_jobs(job: Job, gpus: int, options: SlurmOptions) -> int:
    """Return how many jobs like this one, with so many GPUs, run at a time; 0 for no limit."""
    if not (options.max_gpus and gpus):
        return options.parallel
    if gpus > options.max_gpus:
        raise RequestError(
            f"--max-gpus {options.max_gpus}: {job.cell.key} trains on {gpus} GPUs; give a larger "
            f"number, or --gpus {options.max_gpus} for fewer"
        )
    jobs = options.max_gpus // gpus
    return min(options.parallel, jobs) if options.parallel else jobs


def gpus_at_a_time(rows: Sequence[PlannedCell], options: SlurmOptions, where: Cluster) -> list[str]:
    """Return a line with the largest number of GPUs at a time of all arrays, if it is limited."""
    jobs = job_graph(rows)
    if not (options.max_gpus and jobs):
        return []
    arrays = [array for array, _ in plan_arrays(jobs, options, Path(), where)]
    used = [min(len(one.work), one.parallel) * one.resources.gpus for one in arrays[:-1]]
    words = f" = {' + '.join(map(str, used))}, a limit for each array" if len(used) > 1 else ""
    return [f"GPUs at a time: at most {sum(used)}{words}"]


def check_submitted_weights(rows: Sequence[PlannedCell], results: Path) -> None:
    """Raise ValueError if jobs that have not ended evaluate other weights under a row's name.

    They have no records yet, by which `check_records_of_name` would know them.
    """
    under_way = [one.stored for one in _under_way(results) if one.stored.is_submitted]
    for cell in {row.cell.backbone.name: row.cell for row in rows if row.state == "run"}.values():
        backbone = cell.backbone
        folder = (cell.records / backbone.name).resolve()
        for other in under_way:
            sha256 = other.content["sha256"]
            if sha256 == backbone.sha256 or is_same_file(other.content, backbone):
                continue
            if folder in other.path.resolve().parents:
                raise ValueError(
                    f"job {other.content['job']} is queued or running and evaluates other weights "
                    f"under the name {backbone.name}: hash {sha256[:12]}, and this checkpoint's is "
                    f"{backbone.sha256[:12]}. Give this checkpoint another --name"
                )


def _under_way(results: Path) -> list[CellState]:
    """Return the states of the cells that are queued or running."""
    return [one for one in all_states(results)[0] if one.name in ("queued", "running")]


def submit_cells(rows: Sequence[PlannedCell], options: SlurmOptions, where: Cluster) -> int:
    """Submit the cells in state "run" that are not queued or running; return how many.

    ClusterError if the cluster refuses them, or if their states cannot be written.
    """
    settings = rows[0].cell.settings
    under_way = {one.stored.path.resolve() for one in _under_way(settings.results)}
    new = [row for row in rows if state_path(row.cell.path).resolve() not in under_way]
    if len(new) < len(rows):
        count = len(rows) - len(new)
        place = ["--results", str(settings.results)] if settings.results != Path("results") else []
        print(
            f"{count} {'cell is' if count == 1 else 'cells are'} queued or running already, "
            "with other options perhaps: python -m benchmarks.status shows them, "
            f"run_all.py {shlex.join(['--cancel', *place])} cancels all that have not ended",
            file=sys.stderr,
        )
    if not (jobs := job_graph(new)):
        return 0
    folder = _submission_folder(settings, options, unique_name())
    with explain_write_errors(folder, "--log-folder" if options.log_folder else "--runs"):
        folder.mkdir(parents=True)
    arrays = plan_arrays(jobs, options, folder, where)
    for number, (_, members) in enumerate(arrays):
        for index, job in enumerate(members):
            write_job(folder / f"{number}-{index}.json", job.requests)
    try:
        ids = submit([array for array, _ in arrays], options.queue, folder, where)
    except ClusterError as error:
        if any(word in str(error) for word in NO_MORE_JOBS):
            raise ClusterError(
                f"{error}. The cluster takes no more jobs at present: submit fewer --tasks at a "
                "time, or wait until other jobs have ended"
            ) from error
        raise
    count = 0
    try:
        for (_, members), numbers in zip(arrays, ids, strict=True):
            for job, slurm_id in zip(members, numbers, strict=False):  # the tables have no cells
                for cell in job.cells:
                    _write_submitted(cell, slurm_id, folder, options)
                    count += 1
    except WriteError as error:  # without states, the next run would submit the same cells again
        raise ClusterError(f"{error}; {cancel_submitted(folder, ids)}") from error
    print(
        f"cells submitted: {count}; jobs "
        f"{', '.join(dict.fromkeys(numbers[0].partition('_')[0] for numbers in ids))}  ->  {folder}"
        "\nNo process needs to stay open; python -m benchmarks.status shows the states"
    )
    return count


def _submission_folder(settings: Settings, options: SlurmOptions, name: str) -> Path:
    """Return the folder of logs and job files of one submission."""
    logs = Path(options.log_folder) if options.log_folder else settings.runs / "slurm"
    return (logs / name).absolute()


def _write_submitted(cell: Cell, job: str, folder: Path, options: SlurmOptions) -> None:
    """Write that a cell is queued, or only its submission if the job has already begun.

    The log of the job, whose name is a number, gets a link with the name of the cell.
    """
    log = folder / f"{cell.path.parent.name}.{cell.path.stem}.err"
    with explain_write_errors(log, "--log-folder" if options.log_folder else "--runs"):
        log.symlink_to(log_path(folder, job).name)
    submission: dict[str, Any] = {"job": job, "log": str(log), "cluster": to_json(options)}
    earlier = state.read_state(state_path(cell.path))
    if earlier is not None and earlier.content["job"] == job:
        state.store(earlier.path, earlier.content | submission)
    else:
        state.write(cell, "queued", **submission)


def sbatch_scripts(rows: Sequence[PlannedCell], options: SlurmOptions, where: Cluster) -> str:
    """Return the scripts that sbatch would get, each below its jobs and their cells."""
    if not (jobs := job_graph(rows)):
        return ""
    folder = _submission_folder(rows[0].cell.settings, options, "WHEN")
    scripts = []
    for array, members in plan_arrays(jobs, options, folder, where):
        heads = [f"# {array.name}: {len(array.work)} jobs"]
        for index, job in enumerate(members):
            cells = (f"{cell.backbone.name} {cell.key} seed {cell.seed}" for cell in job.cells)
            heads.append(f"# job {index} runs {', '.join(cells)}")
        scripts.append("\n".join([*heads, script(array, options.queue, folder)]))
    return "\n\n".join(scripts)


def retry_failed(results: Path, options: SlurmOptions) -> int:
    """Submit the failed and cancelled cells again; return how many.

    They keep the options of their first submission, except where an option is given.
    """
    where, count = cluster(), 0
    lost = [one.stored for one in all_states(results)[0] if one.name in ("failed", "cancelled")]
    again = grouped((Path(one.content["log"]).parent, one) for one in lost if one.is_submitted)
    for failed in again.values():
        requests = [from_json(Request, one.content["request"]) for one in failed]
        with assume_gpus(0):  # those of this machine must not change the protocol
            planned = [plan_cell(_without_weights(request)) for request in requests]
        merged = merge_options(options, from_json(SlurmOptions, failed[0].content["cluster"]))
        cores = num_cpus(merged, merged.cell_gpus)
        processes = merged.parallel or len(planned)
        rows = with_shared_work_counted_once(with_classifiers(planned), cores, processes)
        count += submit_cells(rows, merged, where)
    return count


def _without_weights(request: Request) -> Cell:
    """Return the cell of a request for a plan, which needs no weights."""
    return Cell(
        request=request, backbone=replace(open_checkpoint(request.checkpoint), state_dict={})
    )


def merge_options(options: SlurmOptions, earlier: SlurmOptions) -> SlurmOptions:
    """Return the options given now, completed by those of the earlier submission."""
    names = ("parallel", "max_gpus", "hours", "cpus", "memory_gb", "tables_partition", "log_folder")
    given = {name: getattr(options, name) for name in names if getattr(options, name)}
    defaults = vars(Queue())
    changed = {name: new for name, new in vars(options.queue).items() if new != defaults[name]}
    return replace(earlier, queue=replace(earlier.queue, **changed), **given)


def cancel_all(results: Path) -> int:
    """Cancel every job of cells that has not ended; return how many.

    The job that writes the tables runs then, since the jobs that it waits for have ended.
    """
    submitted = [one.content["job"] for one in read_states(results) if one.is_submitted]
    jobs = list(dict.fromkeys(submitted))  # one job may have many cells
    known = job_states(jobs)
    going = [job for job in jobs if job in known and known[job].stage != "ended"]
    if going:
        ask("scancel", *going)
    return len(going)


def collect(results: Path) -> int:
    """Return 0 once tables and report are written, however incomplete; 1 if one cannot be.

    The last job of a submission calls it. The failures of killed cells are written to their state
    files before.
    """
    from benchmarks.report import update_report  # states need neither
    from benchmarks.tables import update_tables

    states, _ = all_states(results)
    for one in states:
        if one.name == "failed" and one.stored.name != "failed":
            failed = {"state": "failed", "reason": one.detail}
            try:
                state.store(one.stored.path, one.stored.content | failed)
            except WriteError as error:
                print(f"the reason of a failure is not noted: {error}", file=sys.stderr)
    print(render_states(states))
    contents = update_tables(results)
    is_reported = update_report(results, contents=contents)
    return int(contents is None or not is_reported)


if __name__ == "__main__":
    sys.exit(collect(Path(sys.argv[1])))
