"""Run jobs on this machine, in sequence or in parallel.

Parallel jobs have one process each, on separate GPUs if there are any. By default, frozen networks
use all GPUs, with one process per GPU (tested with CPU processes, but never on two GPUs). Jobs that
need few GPUs start first; among them, long ones. Ctrl-C and the signals of schedulers are
forwarded: each cell saves, and the same command resumes.
"""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.execution.ending import record_of
from benchmarks.execution.graph import Job
from benchmarks.execution.states import REFRESH_S, write_status_page
from pretrain.running import stop
from pretrain.running.console import is_quiet, live_bars
from pretrain.running.host_memory import SHARERS
from slurm.requeue import killing_signal
from transfer.cells import state
from transfer.cells.cell import Cell
from transfer.cells.job import KilledError, command, run, write_job
from transfer.cells.request import Settings

STOPPED = (stop.EXIT_RESUMABLE, *(-number for number in stop.SIGNALS))
"""Exit statuses of a job that stopped or that a signal killed."""
SIGNAL_DELAY_S = 1.0
"""Maximum delay in s between a signal in a child and here."""


def run_jobs(jobs: Sequence[Job], workers: int, settings: Settings) -> None:
    """Run jobs, each after its dependencies.

    Each cell without a record gets a reason in its state file. Raises Stopped after a signal, once
    all cells have saved.
    """
    try:
        if workers > 1:
            _Processes(jobs, workers, settings).run()
        else:
            _run_in_sequence(jobs, settings)
    except BaseException:  # other machines cannot see that this process has ended
        for job in jobs:
            for cell in job.cells:
                state.note_stopped(cell)
        write_status_page(settings.results, settings.runs)
        raise


def _run_in_sequence(jobs: Sequence[Job], settings: Settings) -> None:
    with live_bars() as bars:
        bar = None
        if bars is not None:
            bar = bars.add_task("all evaluations", total=len(jobs), count="")
        for number, job in enumerate(jobs):
            stop.exit_if_requested()
            if bars is not None and bar is not None:
                bars.update(bar, description=f"all evaluations  {_names(job)}", completed=number)
                bars.refresh()
            else:
                _announce(number + 1, len(jobs), job)
            try:
                run(job.requests)
            except KilledError as error:
                _note_failures(job, str(error))
            write_status_page(settings.results, settings.runs)


def _names(job: Job) -> str:
    backbones = ", ".join(dict.fromkeys(cell.backbone.name for cell in job.cells))
    return f"{backbones}  {', '.join(dict.fromkeys(cell.key for cell in job.cells))}"


def _announce(number: int, total: int, job: Job) -> None:
    if not is_quiet():
        print(f"[{number}/{total}] {_names(job)}", file=sys.stderr, flush=True)


def _note_failures(job: Job, reason: str) -> None:
    """Store the reason for cells without a record or a reason."""
    for cell in job.cells:
        if not (state.is_done(cell) or state.failure(cell)) and record_of(cell) is None:
            state.fail(cell, RuntimeError(reason))
            print(f"{cell.key}  failed: {reason}", file=sys.stderr, flush=True)


class _Processes:
    """Jobs that run in parallel processes, at most `workers` at a time."""

    def __init__(self, jobs: Sequence[Job], workers: int, settings: Settings) -> None:
        self.workers, self.total = workers, len(jobs)
        self.settings = settings
        self.free = visible_gpus()
        self.num_gpus = len(self.free)
        # start jobs on many GPUs last: while they wait for all GPUs, some are idle
        self.waiting = sorted(jobs, key=lambda job: (self._gpus_needed(job.cell), -job.hours))
        self.running: dict[subprocess.Popen[bytes], tuple[Job, list[str], Path]] = {}

    def run(self) -> None:
        """Run all jobs; raise Stopped after a signal, when all have saved."""
        forwarded, page_s = False, 0.0
        results, runs = self.settings.results, self.settings.runs
        while self.waiting or self.running:
            if stop.is_requested():
                self.waiting.clear()
                for process in self.running if not forwarded else ():
                    process.send_signal(signal.SIGTERM)
                forwarded = True
            while (job := self._next_job()) is not None:
                self.waiting.remove(job)
                self._begin(job)
            for process in [process for process in self.running if process.poll() is not None]:
                job, gpus, file = self.running.pop(process)
                self.free += gpus
                file.unlink(missing_ok=True)
                self._end(job, process.returncode)
            if time.monotonic() - page_s >= REFRESH_S:
                page_s = time.monotonic()
                for job in (*self.waiting, *(job for job, *_ in self.running.values())):
                    for cell in job.cells:
                        state.keep_alive(cell)
                write_status_page(results, runs)
            try:
                time.sleep(0.1)
            except KeyboardInterrupt:  # the second Ctrl-C kills the cells immediately
                for process in self.running:
                    process.kill()
                    process.wait()
                raise
        write_status_page(results, runs)
        stop.exit_if_requested()

    def _next_job(self) -> Job | None:
        """Return the next job, if a job, a worker and GPUs are available."""
        unfinished = {*self.waiting, *(job for job, *_ in self.running.values())}
        job = next((job for job in self.waiting if unfinished.isdisjoint(job.dependencies)), None)
        if job is None or len(self.running) >= self.workers:
            return None
        return job if len(self.free) >= self._gpus_needed(job.cell) else None

    def _gpus_needed(self, cell: Cell) -> int:
        """Return the number of GPUs that a cell uses on this machine."""
        return min(cell.task.num_processes(cell.settings.training), self.num_gpus)

    def _begin(self, job: Job) -> None:
        """Announce the job and start its process."""
        number = self.total - len(self.waiting)
        _announce(number, self.total, job)
        count = self._gpus_needed(job.cell)
        gpus, self.free = self.free[:count], self.free[count:]
        # progress bars of several processes would overwrite each other
        environment = {**os.environ, "TERM": "dumb"}
        max_parallel = [self.workers, self.total]
        if count:
            max_parallel.append(self.num_gpus // count)
        environment[SHARERS] = str(min(max_parallel))
        if gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        # containers that share --runs may have equal process ids
        file = self.settings.runs / "jobs" / f"{secrets.token_hex(8)}.json"
        write_job(file, job.requests)
        process = subprocess.Popen(
            command(file),
            env=environment,
            start_new_session=True,  # Ctrl-C reaches it only through this process
            preexec_fn=stop.signal_at_parents_end,
        )
        self.running[process] = (job, gpus, file)

    def _end(self, job: Job, status: int) -> None:
        """Store a reason for cells without a record, unless they were stopped."""
        if status in STOPPED and not stop.is_requested():
            time.sleep(SIGNAL_DELAY_S)
        if status == 0 or (status in STOPPED and stop.is_requested()):
            return
        killer = killing_signal(status)
        reason = f"killed by {killer}" if killer else f"exit status {status}; see its output above"
        if status == stop.EXIT_RESUMABLE:
            reason = "stopped by another process. Run the same command to resume"
        _note_failures(job, reason)


def visible_gpus() -> list[str]:
    """Return the visible GPUs, named as in CUDA_VISIBLE_DEVICES."""
    import torch

    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return names.split(",")[:count] if names else [str(index) for index in range(count)]
