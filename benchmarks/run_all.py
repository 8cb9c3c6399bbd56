"""Evaluate checkpoints on all tasks and write the tables: benchmarks/run_all.py --ckpt jcl.pth.

Finished evaluations are not repeated. If one fails, the others still run, and the tables show the
reason. Exit status: 0 all requested results are written, 1 a task failed, 2 the request is wrong,
75 stopped by a signal; the same command resumes.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

if __name__ == "__main__" and __spec__ is None:
    # started as a file: use the packages of this checkout, not of an installed one
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    # child processes inherit it; with a safe path, they import nothing from the present folder
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [sys.path[0], os.environ.get("PYTHONPATH")])
    )
    os.environ["PYTHONSAFEPATH"] = "1"

if find_spec("tyro") is None:
    print(
        f"error: the packages of the suite are not installed for {sys.executable}. Run "
        "`make setup` once, then .venv/bin/python benchmarks/run_all.py ...",
        file=sys.stderr,
    )
    sys.exit(2)


import subprocess
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import pairwise

from benchmarks.execution.ending import finish_run, write_requested
from benchmarks.execution.graph import job_graph, with_hours_of_this_machine
from benchmarks.execution.local import run_jobs
from benchmarks.execution.states import earlier_work
from benchmarks.planning.cells import require_data_folder, split_numbers, task_keys
from benchmarks.planning.checkpoints import (
    backbones,
    settle_declarations,
)
from benchmarks.planning.options import CURVE_TASKS, RunAll
from benchmarks.planning.plan import (
    MAX_LINES,
    NO_GPU,
    PlannedCell,
    get_data_command,
    plan_cell,
    protocol_notes,
    render_plan,
    render_plan_groups,
    with_classifiers,
)
from benchmarks.results.final_screen import first_lines
from benchmarks.results.records import read_results, require_folder, unused_lines
from benchmarks.words import grouped
from pretrain.running import stop
from pretrain.running.atomic_files import explain_write_errors
from pretrain.running.command_line import one_line_errors, parse, run_command
from pretrain.running.console import QUIET
from pretrain.running.processes import (
    LaunchError,
    assume_gpus,
    num_gpus,
    require_launcher,
    started_processes,
)
from pretrain.running.ranges import SEEDS, check_ranges
from slurm.cluster import Cluster, ClusterError, cluster
from transfer.cells.cell import Cell, check_records_of_name
from transfer.cells.checked_data import fingerprint
from transfer.cells.request import Request, Settings, check_options_are_used
from transfer.datasets.expected import DataError
from transfer.datasets.folders import FolderError, check_writable
from transfer.detection.engines import engine_for
from transfer.encoders.architectures import BackboneError
from transfer.encoders.options import Checkpoint
from transfer.finetuning.options import TrainingOptions, length_fraction
from transfer.hours import measured_seconds
from transfer.tasks import task_of

CLUSTER_PRECISION = (
    "note: frozen networks use bfloat16 on the GPUs of the cluster. To use float32 as in the "
    "papers, pass --feature-precision float32"
)


def plan(
    request: RunAll, given: Sequence[Checkpoint] = ()
) -> tuple[list[PlannedCell], dict[str, str]]:
    """Plan every requested cell, and the classifiers that they use.

    given: checkpoints instead of those that the request names.
    Rows are ordered by backbone. Also return the errors of unreadable snapshots, by name.
    """
    fingerprint.cache_clear()
    settings = request.settings
    length_fraction(settings.schedule)
    engine_for(settings.training.engine)
    seeds = split_numbers(request.seeds, "--seeds", "0,1,2", SEEDS)
    tasks = request.tasks
    if request.makes_curves and not tasks:
        tasks = CURVE_TASKS
    keys = task_keys(tasks, request.suite, request.skip)
    require_data_folder(settings.data, may_be_empty=request.plan)
    check_options_are_used(settings, map(task_of, keys))
    opened, unreadable = backbones(request, given)
    cells = [
        Cell(
            request=Request(task=key, checkpoint=checkpoint, seed=seed, settings=settings),
            backbone=backbone,
        )
        for checkpoint, backbone in opened.items()
        for key in keys
        for seed in seeds
    ]
    measured = measured_seconds(settings.runs)
    if request.cluster.slurm:
        from benchmarks.cluster.arrays import plan_on_cluster

        rows = plan_on_cluster(cells, request.cluster, measured)
    else:
        rows = with_classifiers([plan_cell(cell, measured) for cell in cells])
        rows = with_hours_of_this_machine(rows, request.workers or max(1, num_gpus()))
    if not (num_gpus() or request.cluster.slurm):
        rows = [replace(row, limit=NO_GPU) if row.limit else row for row in rows]
    to_run = grouped((row.cell.backbone.name, row.cell) for row in rows if row.state == "run")
    for cells_of_name in to_run.values():
        check_records_of_name(cells_of_name)
    return rows, unreadable


def run(request: RunAll, followed: Sequence[Checkpoint] = ()) -> int:
    """Plan, run or submit all cells; return the exit status.

    followed: checkpoints of a followed run, whose plan is not printed.
    """
    start, results, runs = time.monotonic(), request.settings.results, request.settings.runs
    for folder, option in ((results, "--results"), (runs, "--runs")):
        try:
            check_writable(folder, option)
        except FolderError as error:
            if not request.plan:  # which writes nothing
                raise
            print(f"note: {error}", file=sys.stderr)
    site = None
    if request.cluster.slurm:
        try:
            site = cluster()
        except ClusterError as error:
            if not request.plan:
                raise
            print(f"note: {error}; the scripts ignore the cluster's limits", file=sys.stderr)
            site = Cluster({})
    rows, unreadable = plan(request, followed)
    if followed and all(row.state == "cached" for row in rows):
        return 0
    if request.plan or not (request.quiet or followed):
        print_plan(rows, request, site)
    if request.plan:
        if site is not None:
            from benchmarks.cluster.arrays import sbatch_scripts

            print(sbatch_scripts(rows, request.cluster, site))
        if command := get_data_command(rows):
            print(command)
        return 0
    require_something_to_run(rows, request)
    with explain_write_errors(results, "--results"):
        results.mkdir(parents=True, exist_ok=True)
    if not request.makes_curves:
        rows, lines = settle_declarations(rows, is_explicit=bool(request.declared))
        if not request.quiet:
            print("".join(f"{line}\n" for line in lines), end="", file=sys.stderr)
    if not followed and (line := earlier_work(runs)):
        print(line, file=sys.stderr)
    write_requested(rows, named=bool(request.tasks or request.suite), is_local=site is None)
    if site is not None:
        from benchmarks.cluster.arrays import submit_cells

        submit_cells(rows, request.cluster, site)
        return 0
    jobs = job_graph(rows)
    run_jobs(jobs, request.workers or min(num_gpus(), len(jobs)), request.settings)
    return finish_run(rows, request, start, unreadable)


def print_plan(rows: list[PlannedCell], request: RunAll, site: Cluster | None) -> None:
    """Print the plan, the deviations of its cells, and warnings.

    With --plan, the plan goes to stdout, since it is the result; before a run, it goes to stderr.
    """
    deviations = protocol_notes(rows)
    if request.plan_full:
        lines = [render_plan(rows), *deviations]
    else:
        shortened = first_lines(deviations, MAX_LINES, "more, see --plan full")
        lines = [render_plan_groups(rows), *shortened]
    results = request.settings.results
    warnings = unused_lines(read_results(results).unused, results)
    if site is not None:
        from benchmarks.cluster.arrays import gpus_at_a_time

        lines += gpus_at_a_time(rows, request.cluster, site)
        warnings += site.warnings()
    print("\n".join(lines), file=sys.stdout if request.plan else sys.stderr)
    for warning in warnings:
        print(warning, file=sys.stderr)
    automatic = request.settings.features_in == "auto"
    frozen = any(row.state == "run" and not row.cell.task.trains_backbone for row in rows)
    if site is not None and frozen and automatic and request.cluster.cell_gpus:
        print(CLUSTER_PRECISION, file=sys.stderr)


def require_something_to_run(rows: list[PlannedCell], request: RunAll) -> None:
    """Raise DataError if nothing can run."""
    if any(row.state in ("run", "cached") for row in rows):
        return
    missing = dict.fromkeys(key for row in rows for key in row.missing)
    reasons = [f"missing data in {request.settings.data}: {', '.join(missing)}"] if missing else []
    reasons += dict.fromkeys(f"{row.cell.key}: {row.reason}" for row in rows if row.reason)
    text = "; ".join(first_lines(reasons, 2, "more reasons, see --plan full"))
    if command := get_data_command(rows):
        text += f". To get data: {command.splitlines()[-1]}"
    raise DataError(f"nothing to run: {text}")


def demo(request: RunAll) -> int:
    """Pre-train and evaluate on generated data in runs/demo; return the exit status."""
    from transfer.datasets.synthetic.generate import generate

    runs = request.settings.runs
    check_writable(runs, "--runs")
    home = runs / "demo"
    data, checkpoint = home / "data", home / "jcl" / "backbone.pt"
    print("generating small versions of all datasets", file=sys.stderr, flush=True)
    generate(data)
    command = [sys.executable, "-m", "pretrain", "jcl/demo", "--data", str(data / "pretrain")]
    pretrained = subprocess.run([*command, "--out", str(checkpoint.parent)])
    stop.exit_if_requested()
    if pretrained.returncode:  # the command has printed its error
        return 1
    return run(
        RunAll(
            ckpt=(checkpoint,),
            name=("jcl",),
            random=True,
            settings=Settings(
                data=data,
                results=home / "results",
                runs=home,
                schedule="smoke",
                training=TrainingOptions(engine="torchvision", gpus=1),
            ),
            quiet=request.quiet,
        )
    )


def manage_submitted_cells(request: RunAll) -> int:
    """Retry or cancel submitted cells if requested, and print all states.

    Returns 1 if any cell failed or was cancelled, otherwise 0.
    """
    from benchmarks.cluster.arrays import cancel_all, retry_failed
    from benchmarks.execution.states import print_states, watch

    options = request.cluster
    results, runs = request.settings.results, request.settings.runs
    require_folder(results)
    if options.retry_failed:
        retry_failed(results, options)
    if options.cancel:
        print(f"{cancel_all(results)} jobs cancelled")
    return watch(results, runs) if options.watch else print_states(results, runs)


def gpus_of_cells(request: RunAll) -> AbstractContextManager[None]:
    """Return a context in which `num_gpus` counts the GPUs of each cell."""
    if request.cluster.slurm:  # the GPUs of the submitting machine must not change the protocol
        return assume_gpus(0)
    if request.workers > 1:
        return assume_gpus(min(num_gpus(), request.settings.training.gpus or 1))
    return nullcontext()


@one_line_errors(BackboneError, DataError, ClusterError, ValueError, FileNotFoundError)
def main(args: list[str]) -> int:
    """Run the command line; return its exit status."""
    if ("--plan", "full") in pairwise(args):
        index = args.index("full", args.index("--plan"))
        args = [*args[: index - 1], "--plan-full", *args[index + 1 :]]
    for option in ("--tasks", "--suite"):  # such as "$TASKS" in a script that does not set it
        if (option, "") in pairwise(args) or f"{option}=" in args:
            raise ValueError(f"{option} is empty. To run all default tasks, leave it out")
    request = parse(RunAll, args, description=__doc__)
    request = replace(request, plan=request.plan or request.plan_full)
    if not request.cluster.watch:  # --watch has nothing to save: signals end it at once
        stop.listen()
    if request.quiet:
        os.environ[QUIET] = "1"  # child processes inherit it
    check_ranges(request)
    request.check_mode()
    if request.cluster.concerns_submitted_cells:
        return manage_submitted_cells(request)
    require_launcher()
    if (count := started_processes()) > 1:
        raise LaunchError(
            f"WORLD_SIZE is {count}, but run_all starts its own processes. Start it once: with "
            "--slurm, or with `python -m slurm --processes 1 ... -- COMMAND`, without torchrun"
        )
    if request.following.follow is not None:
        from benchmarks.follow import follow

        with gpus_of_cells(request):
            return follow(request, run)
    with gpus_of_cells(request):
        return demo(request) if request.demo else run(request)


if __name__ == "__main__":
    views = {"--plan", "--plan-full", "--status"}
    run_command(main, only_prints=bool(views.intersection(sys.argv)))
