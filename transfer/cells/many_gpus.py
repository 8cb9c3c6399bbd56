"""Run a cell in several processes, one per GPU.

The parent process writes the cell to a file and starts python -m transfer.cells.many_gpus FILE once
per GPU. It passes on every request to stop, waits until all workers have saved, and raises the
error of a worker that failed. torchrun is not used: it would kill the workers half a minute after a
request to stop, and would not return their errors.
"""

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pretrain.running import stop
from pretrain.running.atomic_files import WriteError, write_whole
from pretrain.running.console import protect_output
from pretrain.running.errors import SuiteError
from pretrain.running.lock import lock_folder
from pretrain.running.processes import pickled_error, process_group, this_process
from transfer.cells.cell import Cell, finished
from transfer.cells.checked_data import check_once
from transfer.cells.execution import evaluate
from transfer.datasets.catalog import load_annotations
from transfer.record import Record

Worker = subprocess.Popen[bytes]


class KilledError(SuiteError, RuntimeError):
    """Error for a process that a signal has killed."""

    def __init__(self, status: int) -> None:
        name = signal.Signals(-status).name
        super().__init__(
            f"a process was killed by {name}; the same command goes on from the last checkpoint"
        )
        self.status = status
        """Exit status in the form of subprocess: minus the signal's number."""


ALONE_S = 60.0
"""Time for the other workers to end after one has failed or stopped; most end with it at once."""


def evaluate_on_gpus(cell: Cell) -> Record:
    """Evaluate a cell and return its record.

    One process per GPU runs it if the whole network is trained, else this process. Raises the first
    worker's error, KilledError if a worker was killed, RuntimeError if one ended without an error.
    """
    task = cell.task
    here = this_process().num_processes
    alone = task.distributed_training is None
    asked = here if alone else task.num_processes(cell.settings.training)
    if asked == here:
        return evaluate(cell)
    # before `finished`, which reads them
    load_annotations(task.datasets(), cell.folders.data, cell.folders.cache)
    if finished(cell) is not None:
        return evaluate(cell)
    for key in task.datasets():
        check_once(key, cell.settings.data, cell.settings.tolerate)
    work = cell.folders.work
    with lock_folder(work):  # BusyError before any worker starts
        pass
    for old in work.glob("error-*.pickle"):
        old.unlink()
    file = work / "cell.pickle"
    write_whole(file, pickle.dumps(cell), "--runs")
    try:
        failed = wait_for_workers(start_workers(file, asked))
    except KilledError:
        if finished(cell) is None:  # else the worker was killed after it had written the record
            stop.exit_if_requested()  # the signal came before the worker had installed its handler
            raise
        failed = []
    stop.exit_if_requested()
    record = finished(cell)
    if failed or record is None:
        raise first_error(work, failed)
    file.unlink()
    return record


def start_workers(file: Path, num_processes: int) -> list[Worker]:
    """Start the worker processes, in sessions of their own, so that only this one signals them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared = {**os.environ, **meeting, "WORLD_SIZE": str(num_processes)}
    words = [sys.executable, "-m", "transfer.cells.many_gpus", str(file)]
    return [
        subprocess.Popen(
            words,
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            start_new_session=True,
            preexec_fn=stop.signal_at_parents_end,
        )
        for rank in range(num_processes)
    ]


def wait_for_workers(workers: Sequence[Worker]) -> list[int]:
    """Wait until all workers have ended; return the exit statuses that are not 0.

    KilledError if the first failure was a kill: the errors of the others, which report a lost peer,
    are then not the reason.
    """
    told, failed_s, first = False, 0.0, 0
    try:
        while any(worker.poll() is None for worker in workers):
            time.sleep(0.2)
            if stop.is_requested() and not told:
                told = True
                for worker in workers:
                    worker.send_signal(signal.SIGTERM)
            if not failed_s and any(worker.poll() for worker in workers):
                failed_s = time.monotonic()
                first = min(worker.poll() or 0 for worker in workers)
            if failed_s and time.monotonic() - failed_s > ALONE_S:
                break  # the others wait for a worker that is gone, or hang
    finally:
        for worker in workers:
            worker.kill()
    statuses = [worker.wait() for worker in workers]
    first = first if failed_s else min(statuses)
    if first < 0 and not told:
        raise KilledError(first)
    return [status for status in statuses if status]


def first_error(work: Path, statuses: Sequence[int]) -> Exception:
    """Return the error that the first failed worker has written, or a RuntimeError if none has."""
    errors = sorted(work.glob("error-*.pickle"), key=lambda path: path.stat().st_mtime)
    if errors:
        error: Exception = pickle.loads(errors[0].read_bytes())
        return error
    return RuntimeError(
        f"processes ended with status {', '.join(map(str, statuses)) or 0} and left no record; "
        f"their messages stand above. The same command goes on from the last checkpoint"
    )


def main(file: Path) -> None:
    """Evaluate the cell in this worker process; write its error to a file if it fails."""
    stop.listen()
    cell: Cell = pickle.loads(file.read_bytes())
    if cell.task.varied_image_sizes:
        from transfer.finetuning.loop import use_expandable_segments

        use_expandable_segments()  # before the process joins the others, which starts CUDA
    with process_group() as process:
        try:
            evaluate(cell)
        except Exception as error:  # the parent process raises it, whatever it is
            left = file.with_name(f"error-{process.rank}.pickle")
            with suppress(WriteError):  # the error is printed to stderr in any case
                write_whole(left, pickled_error(error))
            raise


if __name__ == "__main__":
    protect_output()
    main(Path(sys.argv[1]))
