"""A job: cells that one process evaluates, one after another.

A run evaluates its jobs in its own process, or starts python -m transfer.cells.job FILE for each,
as the jobs of a cluster do. FILE contains the requests of the cells (ssl-job/1).

A cell that trains on several GPUs has one process per GPU, which this module starts in the same
way. torchrun is not used: it would kill the processes half a minute after a request to stop, and
would not return their errors.

The exit status is 0 if all records are written, 1 if a cell failed, and 75 if the job stopped and
can resume, or a disk could not be read. It is 128 + N if signal N killed a process of a cell.
"""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from pretrain.running import stop
from pretrain.running.atomic_files import WriteError, write_text, write_whole
from pretrain.running.command_line import exit_status_of, run_command
from pretrain.running.console import format_duration, protect_output
from pretrain.running.errors import SuiteError
from pretrain.running.host_memory import network_memory_bytes
from pretrain.running.processes import (
    pickled_error,
    process_group,
    started_processes,
    this_process,
)
from transfer.cells import state
from transfer.cells.cell import Cell, classifier_error, finished
from transfer.cells.execution import evaluate, extract_together, lock_cell, train_probes_together
from transfer.cells.request import Request, from_json, to_json
from transfer.datasets.catalog import load_annotations
from transfer.encoders.options import Checkpoint
from transfer.record import Record, file_for_record

Worker = subprocess.Popen[bytes]


class KilledError(SuiteError, RuntimeError):
    """A signal killed a process."""

    def __init__(self, status: int) -> None:
        name = signal.Signals(-status).name
        super().__init__(
            f"a process was killed by {name}. Run the same command to resume from the last "
            f"checkpoint"
        )
        self.status = status
        """Exit status as in subprocess: minus the number of the signal."""


WORKER_GRACE_S = 60.0
"""Seconds that other processes may run after one has failed or stopped."""


def write_job(file: Path, requests: Sequence[Request]) -> None:
    """Write the file of a job; WriteError if that fails."""
    cells = [to_json(request.absolute()) for request in requests]
    write_text(file, json.dumps({"format": "ssl-job/1", "cells": cells}, indent=1), "--runs")


def read_job(file: Path) -> list[Request]:
    """Return the requests in a job file."""
    return [from_json(Request, cell) for cell in json.loads(file.read_text())["cells"]]


def command(file: Path) -> tuple[str, ...]:
    """Return the command that runs the job in a file."""
    return (sys.executable, "-m", "transfer.cells.job", str(file.absolute()))


def run(requests: Sequence[Request]) -> int:
    """Evaluate cells in this process; return the exit status.

    It is 0, 1 if a cell failed, or 75 if a disk could not be read. The reason of a failure is
    written to the state of the cell, and the other cells run. For cells of several backbones,
    features are extracted and probes are trained first, so that each image is decoded and each
    random crop is made once. KilledError if a signal killed a process of a cell, which can be
    resumed.
    """
    return max(map(_run_together, checkpoints_that_fit(requests)), default=0)


def checkpoints_that_fit(requests: Sequence[Request]) -> Iterator[list[Request]]:
    """Yield requests of as many checkpoints as fit into memory, at least one."""
    of_checkpoint: dict[Checkpoint, list[Request]] = {}
    for request in requests:
        of_checkpoint.setdefault(request.checkpoint, []).append(request)
    # measured before the first group runs: torch keeps that group's GPU memory for reuse
    room = network_memory_bytes() if len(of_checkpoint) > 1 else 0
    group, num_bytes = list[Request](), 0
    for checkpoint, checkpoint_requests in of_checkpoint.items():
        # a file is at least as large as its weights; the network is a second copy in memory
        size = 2 * checkpoint.ckpt.stat().st_size if checkpoint.ckpt.is_file() else 0
        if group and num_bytes + size > room:
            yield group
            group, num_bytes = [], 0
        group, num_bytes = group + checkpoint_requests, num_bytes + size
    yield group


def _run_together(requests: Sequence[Request]) -> int:
    status, cells = 0, list[Cell]()
    for request in requests:
        try:
            cells.append(Cell.of(request))
        except Exception as error:  # such as a file that has changed since the plan
            state.fail_request(request, error)
            status = max(status, _report_failure(request, error))
    if len({cell.backbone.sha256 for cell in cells}) > 1:
        unfinished = [cell for cell in cells if _needs_features(cell)]
        start_s = time.monotonic()
        extract_together(unfinished)
        train_probes_together(unfinished)
        share_s = (time.monotonic() - start_s) / max(1, len(unfinished))
        paths = {cell.path for cell in unfinished}
        cells = [replace(cell, shared_s=share_s) if cell.path in paths else cell for cell in cells]
    for cell in cells:
        stop.exit_if_requested()
        status = max(status, _run_cell(cell))
    return status


def _needs_features(cell: Cell) -> bool:
    try:
        return finished(cell) is None and not _failed_classifier(cell)
    except Exception:  # damaged data: the cell itself will report it
        return False


def _run_cell(cell: Cell) -> int:
    try:
        if cell.classifier_cell is not None and (reason := _failed_classifier(cell)):
            raise classifier_error(cell.classifier_cell, reason)
        print(summary(cell, evaluate_on_gpus(cell)), flush=True)
    except KilledError as error:
        # replaces "failed", which one of its processes may have written
        state.write(cell, "stopped", str(error))
        raise
    except Exception as error:  # the tables must show any reason
        state.fail(cell, error)
        return _report_failure(cell.request, error)
    return 0


def _report_failure(request: Request, error: Exception) -> int:
    """Print why a cell failed; return the exit status."""
    print(f"{request.task}  failed: {error}", file=sys.stderr, flush=True)
    return exit_status_of(error)


def _failed_classifier(cell: Cell) -> str:
    """Return why the cell's classifier failed in this run; empty otherwise."""
    classifier_cell = cell.classifier_cell
    if classifier_cell is None or finished(classifier_cell) is not None:
        return ""
    return state.failure(classifier_cell)


def summary(cell: Cell, record: Record) -> str:
    """Return the result line of a cell: task, metrics, time, file."""
    file = file_for_record(cell.path, record)
    values = "  ".join(f"{name} {value:.2f} %" for name, value in record.metrics.items())
    return f"{cell.key}  {values}  {format_duration(record.wall_s)}  ->  {file}"


def evaluate_on_gpus(cell: Cell) -> Record:
    """Evaluate a cell and return its record.

    One process per GPU runs it if the complete network is trained, otherwise this process. If
    another process runs the cell, wait for it. Raises the first worker's error, KilledError if it
    was killed, RuntimeError if it ended without an error.
    """
    task = cell.task
    num_processes = this_process().num_processes
    is_single_process = task.distributed_training is None
    num_requested = (
        num_processes if is_single_process else task.num_processes(cell.settings.training)
    )
    if num_requested == num_processes:
        return evaluate(cell)
    # `finished` needs the annotations
    load_annotations(task.datasets(), cell.folders.data, cell.folders.cache)
    if finished(cell) is not None:
        return evaluate(cell)
    work_folder = cell.folders.work
    with lock_cell(cell):  # wait for another process before any worker starts
        pass
    for old_error in work_folder.glob("error-*.pickle"):
        old_error.unlink()
    file = work_folder / "job.json"
    write_job(file, [cell.planned_request])
    status = wait_for_workers(start_workers(file, num_requested))
    if (record := finished(cell)) is not None:  # even if a worker has failed afterwards
        file.unlink()
        return record
    stop.exit_if_requested()
    raise first_error(work_folder, status)


def start_workers(file: Path, num_processes: int) -> list[Worker]:
    """Start the worker processes in new sessions; only this process signals them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    size = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(num_processes))
    shared = {**os.environ, **rendezvous, **size}
    return [
        subprocess.Popen(
            command(file),
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            start_new_session=True,
            preexec_fn=stop.signal_at_parents_end,
        )
        for rank in range(num_processes)
    ]


def wait_for_workers(workers: Sequence[Worker]) -> int:
    """Wait until all workers have ended; return the exit status of the first failure, or 0.

    Other workers then report a lost peer, which is not the reason. Among simultaneous failures, a
    kill counts as the first.
    """

    def failure() -> int:
        return min(filter(None, (worker.poll() for worker in workers)), default=0)

    is_stopping, failed_s, status = False, 0.0, 0
    try:
        while any(worker.poll() is None for worker in workers):
            time.sleep(0.2)
            if stop.is_requested() and not is_stopping:
                is_stopping = True
                for worker in workers:
                    worker.send_signal(signal.SIGTERM)
            if not status and (status := failure()):
                failed_s = time.monotonic()
            if status and time.monotonic() - failed_s > WORKER_GRACE_S:
                break  # the other workers hang, or wait for the ended one
    finally:
        for worker in workers:
            worker.kill()
    for worker in workers:
        worker.wait()
    return status or failure()


def first_error(work_folder: Path, status: int) -> Exception:
    """Return the error of the first failed worker, from its exit status."""
    if status < 0:
        return KilledError(status)
    errors = sorted(work_folder.glob("error-*.pickle"), key=lambda path: path.stat().st_mtime)
    if errors:
        error: Exception = pickle.loads(errors[0].read_bytes())
        return error
    return RuntimeError(
        f"a process ended with status {status} and left no record; see its messages above. Run the "
        "same command to resume from the last checkpoint"
    )


def run_worker(file: Path) -> None:
    """Evaluate a job's cell as one of several processes; store any error."""
    stop.listen()
    (request,) = read_job(file)
    with _storing_errors(file):
        cell = Cell.of(request)
    if cell.task.varied_image_sizes:
        from transfer.finetuning.loop import use_expandable_segments

        use_expandable_segments()  # before process_group, which starts CUDA
    # stored within the group: at its end, the other processes fail too
    with process_group(), _storing_errors(file):
        evaluate(cell)


@contextmanager
def _storing_errors(file: Path) -> Iterator[None]:
    """Store an error of this process next to the job's file; the parent process raises it."""
    try:
        yield
    except Exception as error:
        with suppress(WriteError):  # the error is printed to stderr in any case
            name = f"error-{os.environ['RANK']}.pickle"
            write_whole(file.with_name(name), pickled_error(error))
        raise


def main(args: list[str]) -> int:
    """Run the job in a file; return the exit status."""
    stop.listen()
    try:
        return run(read_job(Path(args[0])))
    except KilledError as error:
        print(error, file=sys.stderr, flush=True)
        return 128 - error.status


if __name__ == "__main__":
    if started_processes() > 1:  # the parent process reports how it ended
        protect_output()
        run_worker(Path(sys.argv[1]))
    else:
        run_command(main)
