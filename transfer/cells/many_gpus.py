"""A cell in several processes, one per GPU.

python -m transfer.cells.many_gpus FILE is started once per process.

The file is the cell itself, written a moment before by the process that starts the others. That one
passes on every request to stop, waits until all have saved, and raises what one of them raised.
torchrun would kill them half a minute after the request, and keep the reason to itself.
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

from transfer.cells.cell import Cell, evaluate, finished
from transfer.cells.checked_data import checked
from transfer.record import Record
from transfer.running import stop
from transfer.running.atomic_files import WriteError, write_whole
from transfer.running.portable import pickled_error
from transfer.running.processes import joined, this_process

Worker = subprocess.Popen[bytes]


class KilledError(RuntimeError):
    """A signal has ended a process; what it was remains."""

    def __init__(self, status: int) -> None:
        name = signal.Signals(-status).name
        super().__init__(
            f"a process was killed by {name}; the same command goes on from the last checkpoint"
        )
        self.status = status
        """As subprocess tells it: negative."""


ALONE_S = 60.0
"""How long the others may go on after one has failed; most fail with it at once."""


def evaluate_where_asked(cell: Cell) -> Record:
    """The cell's record: from a process per GPU where the whole network is trained, else this one.

    Raises what the first of the processes raised, KilledError if it was killed, RuntimeError if it
    ended without a word.
    """
    task = cell.task
    here = this_process().num_processes
    alone = task.distributed_training is None
    asked = here if alone else task.num_processes(cell.place.training)
    if asked == here or finished(cell) is not None:
        return evaluate(cell)
    for key in task.datasets():
        checked(key, cell.place.data, cell.place.tolerated)
    work = cell.folders.work
    for old in work.glob("error-*.pickle"):
        old.unlink()
    file = work / "cell.pickle"
    write_whole(file, pickle.dumps(cell), "--runs")
    try:
        failed = waited_for(started(file, asked))
    except KilledError:
        if finished(cell) is None:  # else it died on its way out
            stop.leave_if_asked()  # the signal came before the process could hear it
            raise
        failed = []
    stop.leave_if_asked()
    record = finished(cell)
    if failed or record is None:
        raise reason(work, failed)
    file.unlink()
    return record


def started(file: Path, num_processes: int) -> list[Worker]:
    """The processes, in sessions of their own: signals reach them through this one only."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    words = [sys.executable, "-m", "transfer.cells.many_gpus", str(file)]
    return [
        subprocess.Popen(
            words,
            env={
                **os.environ,
                **meeting,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(num_processes),
            },
            start_new_session=True,
            preexec_fn=stop.asked_at_parents_end,
        )
        for rank in range(num_processes)
    ]


def waited_for(workers: Sequence[Worker]) -> list[int]:
    """Exit statuses that are not 0, once all have ended; KilledError if the first was killed.

    What the others then say, of a peer that is gone, is no reason.
    """
    told, failed_s, first = False, 0.0, 0
    try:
        while any(worker.poll() is None for worker in workers):
            time.sleep(0.2)
            if stop.asked() and not told:
                told = True
                for worker in workers:
                    worker.send_signal(signal.SIGTERM)
            if not failed_s and any(worker.poll() for worker in workers):
                failed_s = time.monotonic()
                first = min(worker.poll() or 0 for worker in workers)
            if failed_s and not told and time.monotonic() - failed_s > ALONE_S:
                break  # the others wait for one that is gone
    finally:
        for worker in workers:
            worker.kill()
    statuses = [worker.wait() for worker in workers]
    first = first if failed_s else min(statuses)
    if first < 0 and not told:
        raise KilledError(first)
    return [status for status in statuses if status]


def reason(work: Path, statuses: Sequence[int]) -> Exception:
    """What the first of the processes that failed has left."""
    errors = sorted(work.glob("error-*.pickle"), key=lambda path: path.stat().st_mtime)
    if errors:
        error: Exception = pickle.loads(errors[0].read_bytes())
        return error
    return RuntimeError(
        f"processes ended with status {', '.join(map(str, statuses)) or 0} and left no record; "
        f"their messages stand above. The same command goes on from the last checkpoint"
    )


def main(file: Path) -> None:
    """What each of the processes does."""
    stop.listen()
    cell: Cell = pickle.loads(file.read_bytes())
    with joined() as process:
        try:
            evaluate(cell)
        except Exception as error:  # whatever it is, the process that waits must raise it
            left = file.with_name(f"error-{process.rank}.pickle")
            with suppress(WriteError):  # it stands on stderr in any case
                write_whole(left, pickled_error(error))
            raise


if __name__ == "__main__":
    main(Path(sys.argv[1]))
