"""Cells side by side on this machine: a process for each, with GPUs of its own where there are any.

Cells that read the same pass over images run one after another in one process. A cell that uses a
classifier starts once the classifier is trained, and not at all if that failed.
Before such cells of several backbones, one process decodes the images once and extracts features.
Ctrl-C and the signals of schedulers are passed on: each cell saves, and the same command continues.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks.execution.jobs import Job, evaluations, extractions, process_command
from benchmarks.execution.states import REFRESH_S, write_status_page
from benchmarks.planning.plan import PlannedCell
from pretrain.running import stop
from pretrain.running.console import is_quiet
from pretrain.running.host_memory import SHARERS
from slurm.requeue import killing_signal
from transfer.cells import state
from transfer.cells.cell import Cell, ClassifierError, finished

STOPPED = (stop.EXIT_RESUMABLE, *(-number for number in stop.SIGNALS))
"""Exit statuses of a cell that was stopped: it has saved, or did not yet handle the signal."""

SIGNAL_DELAY_S = 1.0
"""Time until a signal to all processes of a job has reached this one too, in s."""


class Workers:
    """Cells in state "run", `workers` at a time: processes, waiting jobs, free GPUs, failures."""

    def __init__(self, rows: Sequence[PlannedCell], workers: int) -> None:
        # cells of one backbone find each other's features; only images of several decode together
        several = [job for job in extractions(rows) if len(job.backbones) > 1]
        self.waiting = [*several, *evaluations(rows)]
        self.workers, self.total = workers, len(self.waiting)
        self.settings = rows[0].cell.settings
        self.free = visible_gpus()
        self.num_gpus = len(self.free)
        self.running: dict[subprocess.Popen[bytes], tuple[Job, list[str]]] = {}
        self.failed: list[Cell] = []

    def run(self) -> list[Cell]:
        """Run all jobs; return the cells that failed.

        Raises Stopped after a signal, once all cells have saved.
        """
        forwarded, page_s = False, 0.0
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
                job, gpus = self.running.pop(process)
                self.free += gpus
                self.failed += self._failed_cells(job, process.returncode)
            if time.monotonic() - page_s >= REFRESH_S:
                page_s = time.monotonic()
                write_status_page(self.settings.results, self.settings.runs)
            try:
                time.sleep(0.1)
            except KeyboardInterrupt:  # the second Ctrl-C kills the cells at once
                for process in self.running:
                    process.kill()
                    process.wait()
                raise
        write_status_page(self.settings.results, self.settings.runs)
        stop.exit_if_requested()
        return self.failed

    def _next_job(self) -> Job | None:
        """Return the first job that waits for no other; None if it waits for GPUs or a worker."""
        others = [*self.waiting, *(job for job, _ in self.running.values())]
        ready = (job for job in self.waiting if not any(map(job.waits_for, others)))
        job = next(ready, None)
        if job is None or len(self.running) >= self.workers:
            return None
        # no smaller work overtakes: one that needs many GPUs would starve
        return job if len(self.free) >= self._gpus_needed(job.cell) else None

    def _gpus_needed(self, cell: Cell) -> int:
        """Return the number of GPUs of a cell: one, or as many as it trains on; 0 without GPUs."""
        many = cell.task.distributed_training is not None and cell.settings.training.gpus
        return min(cell.settings.training.gpus if many else 1, self.num_gpus)

    def _begin(self, job: Job) -> None:
        """Announce the job and start its process, unless the classifier that it needs failed."""
        if not is_quiet():
            what = "features for" if job.prepares else job.cell.backbone.name
            keys = job.cell.key if job.prepares else ", ".join(cell.key for cell in job.cells)
            number = self.total - len(self.waiting)
            print(f"[{number}/{self.total}] {what}  {keys}", file=sys.stderr)
        for classifier in (cell for cell in self.failed if cell.path == job.needs):
            reason = state.failure(classifier) or "its state cannot be read"
            for cell in job.cells:
                self._fail(cell, ClassifierError(classifier.key, reason))
            self.failed += job.cells
            return
        count = self._gpus_needed(job.cell)
        gpus, self.free = self.free[:count], self.free[count:]
        environment = {**os.environ, "TERM": "dumb"}  # bars of several processes would overwrite
        environment[SHARERS] = str(min(self.workers, self.total))
        if gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        process = subprocess.Popen(
            process_command(job.arguments()),
            env=environment,
            start_new_session=True,  # Ctrl-C reaches it through this process only
            preexec_fn=stop.signal_at_parents_end,
        )
        self.running[process] = (job, gpus)

    def _fail(self, cell: Cell, error: Exception) -> None:
        state.fail(cell, error)
        print(f"{cell.key}  failed: {error}", file=sys.stderr, flush=True)

    def _failed_cells(self, job: Job, status: int) -> Iterator[Cell]:
        """Yield the cells of an ended process that have failed; each has a reason then."""
        if status in STOPPED and not stop.is_requested():
            time.sleep(SIGNAL_DELAY_S)
        if status == 0 or (status in STOPPED and stop.is_requested()):
            return
        killer = killing_signal(status)
        reason = f"killed by {killer}" if killer else f"exit status {status}"
        if status == stop.EXIT_RESUMABLE:
            reason = "stopped by another process; the same command goes on"
        if job.prepares:
            warning = f"joint extraction failed: {reason}; each cell extracts alone"
            print(f"{job.cell.key}  {warning}", file=sys.stderr, flush=True)
            return
        # a process may be killed after it has written a record
        for cell in (cell for cell in job.cells if finished(cell) is None):
            if not state.failure(cell):
                self._fail(cell, RuntimeError(reason))
            yield cell


def visible_gpus() -> list[str]:
    """Return the names of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES has them."""
    import torch

    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return names.split(",")[:count] if names else [str(index) for index in range(count)]
