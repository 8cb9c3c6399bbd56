"""A loader whose worker processes make batches ahead, in order, for all code that reads images.

PyTorch's DataLoader is not used. Its workers share queues and locks, so one that dies or is killed
can block all others. Its errors arrive as text. Signals of a scheduler, which reach every process
of a job, end its workers before the run can save. Here each worker has its own connection, ignores
requests to stop, and may be killed at any time without harm to the others.

Tensors travel in shared memory, which costs no copy. Containers often have only 64 MB of it, or
none: what finds no room there is copied through the connection.
"""

import atexit
import contextlib
import ctypes
import multiprocessing
import os
import queue
import shutil
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.running import stop
from pretrain.running.console import print_line
from pretrain.running.errors import SuiteError
from pretrain.running.processes import pickled_error

BATCHES_AHEAD = 2
"""Batches that each worker may make or begin before they are requested."""
PATIENCE_S = 5.0
"""Longest wait for a worker that is about to end."""
LOOK_AGAIN_S, HANGING_S = 1.0, 30.0
"""Time between two looks for a signal, and longest wait for images after one."""
SHARED_MEMORY = Path("/dev/shm")
RESERVE_BYTES = 2**24
"""Bytes that are left to others in shared memory, such as NCCL."""

Place = TypeVar("Place")
Batch = TypeVar("Batch")


class WorkerKilledError(SuiteError, RuntimeError):
    """Error for a worker process that ended without an error of its own."""


def load_batches(
    make: Callable[[Place], Batch],
    places: Iterable[Place],
    *,
    num_workers: int,
    pin: Callable[[Batch], Batch] | None = None,
) -> Generator[Batch, None, None]:
    """Yield make(place) for each place, in order; with 0 workers, this process makes them.

    The workers are forks, so the data that `make` refers to is shared, not copied. Errors of `make`
    are raised here unchanged, with the worker's traceback as a note. WorkerKilledError names the
    probable reason why a worker has ended. The workers end with the iteration, however it ends, and
    with this process or the thread that began the iteration.
    pin: moves a batch to pinned memory, in this process.
    """
    workers: list[_Worker] = []
    end = partial(_end, workers)
    atexit.register(end)  # an exception's traceback may hold this generator until then
    if num_workers:
        _note_missing_shared_memory()
    try:
        _start(workers, make, num_workers)
        batches = _batches_of(workers, places) if workers else map(make, places)
        yield from batches if pin is None else map(pin, batches)
    finally:
        end()
        atexit.unregister(end)


class _Worker(NamedTuple):
    """One process, and this process's end of the connection to it."""

    process: ForkProcess
    connection: "Connection[Any, Any]"


def _start(workers: list[_Worker], make: Callable[[Any], Any], count: int) -> None:
    """Fork the processes. Signals that ask for a stop are blocked in them from the start."""
    context = multiprocessing.get_context("fork")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, stop.SIGNALS)
    try:
        for _ in range(count):
            here, there = context.Pipe()
            inherited = [worker.connection for worker in workers] + [here]
            arguments = (make, there, inherited, os.getpid())
            process = context.Process(target=_work, args=arguments, daemon=True)
            process.start()
            there.close()  # so that the connection ends when the worker does
            workers.append(_Worker(process, here))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _batches_of(workers: list[_Worker], places: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches; request a worker's next one as soon as it has sent one."""
    remaining = iter(places)
    asked: deque[_Worker] = deque()

    def ask(worker: _Worker) -> None:
        for place in remaining:
            with _death_explained(worker.process):
                worker.connection.send(place)
            asked.append(worker)
            return

    for worker in workers * BATCHES_AHEAD:
        ask(worker)
    while asked:
        worker = asked.popleft()
        with _death_explained(worker.process), stop.own_work():
            while not worker.connection.poll(LOOK_AGAIN_S):
                if stop.requested_s() > HANGING_S:  # on a disk that hangs, after a signal
                    raise stop.Stopped(stop.EXIT_RESUMABLE)
            result = worker.connection.recv()
        if isinstance(result, Exception):
            raise result
        ask(worker)
        yield result


def _end(workers: list[_Worker]) -> None:
    """Kill the workers, and remove what one of them was about to share."""
    for worker in workers:
        worker.process.kill()
    for worker in workers:
        worker.process.join(PATIENCE_S)
        # torch removes the name as soon as the memory is mapped, unless it is killed before
        for file in SHARED_MEMORY.glob(f"torch_{worker.process.pid}_*"):
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def _death_explained(process: ForkProcess) -> Iterator[None]:
    """Replace the error of a connection whose worker has ended by the likely reason."""
    try:
        yield
    except (EOFError, OSError) as error:
        process.join(PATIENCE_S)
        status = process.exitcode
        if status is None:
            raise
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        why = "its last words may stand above"
        if status == -signal.SIGKILL:
            why = (
                "most likely because memory ran out: load with fewer processes (--workers of "
                "pretrain and make-corruptions; else a smaller --cpus on a cluster, taskset -c 0-3 "
                "before the command elsewhere), or give the run more memory"
            )
        raise WorkerKilledError(
            f"a process that loads images has ended ({how}), {why}; the same command goes on"
        ) from error


def _work(
    make: Callable[[Any], Any],
    connection: "Connection[Any, Any]",
    inherited: Sequence["Connection[Any, Any]"],
    parent: int,
) -> None:
    """Make batches until killed; this is the main function of a worker process."""
    ctypes.CDLL(None).prctl(stop.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    for other in inherited:
        other.close()
    torch.set_num_threads(1)  # a fork lacks the threads of its parent and would wait for them
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)
    results: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
    threading.Thread(target=_send, args=(connection, results), daemon=True).start()
    while True:
        try:
            place = connection.recv()
        except EOFError:
            return
        results.put(_packed(make, place))


def _send(connection: "Connection[Any, Any]", results: "queue.SimpleQueue[memoryview]") -> None:
    """Send results in a thread, so that a full connection does not delay the next batch."""
    with contextlib.suppress(OSError):
        while True:
            connection.send_bytes(results.get())


def _packed(make: Callable[[Any], Any], place: object) -> memoryview:
    """Return a batch as bytes for pickle.loads, or the error with its traceback as a note."""
    try:
        return _Packer.dumps(make(place), protocol=5)
    except Exception as error:  # raised again in the parent process
        where = "".join(traceback.format_exception(error))
        error.add_note(f"In a process that loads images:\n{where}")
        return memoryview(pickled_error(error))


class _Packer(ForkingPickler):
    """Pickler of a batch that copies tensors for which shared memory has no room."""

    def reducer_override(self, value: object) -> Any:
        """Return how to restore a tensor from a copy; NotImplemented for everything else."""
        if type(value) is not Tensor or value.device.type != "cpu" or _move_to_shared_memory(value):
            return NotImplemented
        content = value.contiguous().reshape(-1).view(torch.uint8).numpy()
        return _restore, (content, value.dtype, tuple(value.shape))


def _move_to_shared_memory(tensor: Tensor) -> bool:
    """Move a tensor to shared memory; return whether there was room."""
    size = tensor.untyped_storage().nbytes()
    if not size:
        return True
    if not tensor.is_shared() and shared_memory_bytes() < size + RESERVE_BYTES:
        return False
    try:
        tensor.share_memory_()
    except RuntimeError:  # other processes were faster
        return False
    return True


def shared_memory_bytes() -> int:
    """Return the room in shared memory; 0 on a machine that has none."""
    try:
        return shutil.disk_usage(SHARED_MEMORY).free
    except OSError:
        return 0


@lru_cache(maxsize=1)
def _note_missing_shared_memory() -> None:
    """Print, once in a process, that batches are copied."""
    if not SHARED_MEMORY.is_dir():
        print_line(f"note: no {SHARED_MEMORY} here; loader processes copy their batches")


def _restore(content: NDArray[np.uint8], dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(content).view(dtype).reshape(shape)
