"""A loader whose worker processes make batches ahead, in order, for all code that reads images.

PyTorch's DataLoader is not used. Its workers share queues and locks, so one that dies or is killed
can block all others. Its errors arrive as text. Signals of a scheduler, which reach every process
of a job, end its workers before the run can save. Here each worker has its own connection, ignores
requests to stop, and may be killed at any time without harm to the others.
"""

import atexit
import contextlib
import ctypes
import mmap
import multiprocessing
import os
import pickle
import queue
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any, Generic, TypeVar

import torch

from pretrain.running import stop
from pretrain.running.errors import SuiteError
from pretrain.running.processes import pickled_error
from pretrain.running.shared_memory import (
    LARGER,
    SHARED_MEMORY,
    note_small_shared_memory,
    pack_batch,
)

BATCHES_AHEAD = 2
"""Batches that each worker may make or begin before they are requested."""
PATIENCE_S = 5.0
"""Longest wait for a worker that transfers a batch or is about to end."""
FEWER = (
    "load with fewer processes (--workers of pretrain and make-corruptions; else a smaller --cpus "
    "on a cluster, taskset -c 0-3 before the command elsewhere)"
)

Place = TypeVar("Place")
Batch = TypeVar("Batch")


class WorkerKilledError(SuiteError, RuntimeError):
    """Error for a worker process that ended without an error of its own."""


class SharedMemoryError(SuiteError, RuntimeError):
    """Error for a full /dev/shm, through which workers transfer their tensors."""


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
    probable reason why a worker has ended; SharedMemoryError means that /dev/shm is full. The
    workers end with the iteration, however it ends, and with this process or the thread that began
    the iteration.
    pin: moves a batch to pinned memory; if there are workers, it is called in a thread.
    """
    if num_workers == 0:
        for place in places:
            batch = make(place)
            yield batch if pin is None else pin(batch)
        return
    note_small_shared_memory()
    workers: _Workers[Place, Batch] = _Workers()
    atexit.register(workers.end)  # an exception's traceback may hold this generator until then
    try:
        workers.start(make, num_workers)
        batches = workers.batches(places)
        yield from batches if pin is None else _pinned(batches, pin, workers)
    finally:
        workers.end()
        atexit.unregister(workers.end)


@dataclass(frozen=True)
class _Failure:
    """An error that is sent instead of a batch."""

    error: bytes
    """Result of `pickled_error`."""


@dataclass(frozen=True)
class _Ended:
    """The marker after the last pinned batch, with the error that ended the iteration, if any."""

    error: BaseException | None


@dataclass(frozen=True)
class _Worker:
    """One process, and this process's end of the connection to it."""

    process: ForkProcess
    connection: "Connection[Any, Any]"


class _Workers(Generic[Place, Batch]):
    """The processes of one iteration."""

    def __init__(self) -> None:
        self.workers: list[_Worker] = []
        self.flags: bytearray | mmap.mmap = bytearray(1)
        """Shared bytes: the first tells all workers to end, each other is 1 during a transfer."""

    def start(self, make: Callable[[Place], Batch], count: int) -> None:
        """Fork the processes. Signals that ask for a stop are blocked in them from the start."""
        context = multiprocessing.get_context("fork")
        flags = self.flags = mmap.mmap(-1, count + 1)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, stop.SIGNALS)
        try:
            for number in range(count):
                here, there = context.Pipe()
                inherited = [worker.connection for worker in self.workers] + [here]
                arguments = (make, there, inherited, flags, number + 1, os.getpid())
                process = context.Process(target=_work, args=arguments, daemon=True)
                process.start()
                there.close()  # so that the connection ends when the worker does
                self.workers.append(_Worker(process, here))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def batches(self, places: Iterable[Place]) -> Iterator[Batch]:
        """Yield the batches; request a worker's next one as soon as it has sent one."""
        remaining = iter(places)
        asked: deque[_Worker] = deque()
        for worker in self.workers * BATCHES_AHEAD:
            self._ask(worker, remaining, asked)
        while asked:
            worker = asked.popleft()
            with _death_explained(worker.process):
                result = worker.connection.recv()
            if isinstance(result, _Failure):
                raise pickle.loads(result.error)
            self._ask(worker, remaining, asked)
            yield result

    def _ask(self, worker: _Worker, remaining: Iterator[Place], asked: deque[_Worker]) -> None:
        for place in remaining:
            with _death_explained(worker.process):
                worker.connection.send(place)
            asked.append(worker)
            return

    def end(self) -> None:
        """Kill the workers, but not during a transfer, which would leave a file in /dev/shm."""
        self.flags[0] = 1
        until = time.monotonic() + PATIENCE_S
        try:
            while self._handing_over() and time.monotonic() < until:
                time.sleep(0.01)
        finally:
            for worker in self.workers:
                worker.process.kill()
            for worker in self.workers:
                worker.process.join(PATIENCE_S)

    def _handing_over(self) -> bool:
        return any(
            self.flags[number] and worker.process.is_alive()
            for number, worker in enumerate(self.workers, 1)
        )


@contextlib.contextmanager
def _death_explained(process: ForkProcess) -> Iterator[None]:
    """Replace the error of a connection whose worker has ended by the likely reason."""
    try:
        yield
    except (EOFError, OSError) as error:
        process.join(PATIENCE_S)
        if process.exitcode is None:
            raise
        raise _death(process.exitcode) from error


def _death(status: int) -> Exception:
    """Return the error for a worker's exit status, which is negative for a signal."""
    if status == -signal.SIGBUS:
        return _full_shared_memory("Bus error in a process that loads images")
    if status == -signal.SIGKILL:
        return WorkerKilledError(
            "a process that loads images was killed by SIGKILL, most likely because memory ran "
            f"out: {FEWER}, or give the run more memory; the same command goes on"
        )
    how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return WorkerKilledError(
        f"a process that loads images has ended ({how}), its last words may stand above; "
        "the same command goes on"
    )


def _full_shared_memory(what: str) -> SharedMemoryError:
    """Return the error that says how to make room."""
    size_mb = shutil.disk_usage(SHARED_MEMORY).total / 1e6
    return SharedMemoryError(
        f"{what}: {SHARED_MEMORY} ({size_mb:,.0f} MB), through which these processes hand over "
        f"images, is full: {FEWER}, or make it larger ({LARGER}); the same command goes on"
    )


def _work(
    make: Callable[[Any], Any],
    connection: "Connection[Any, Any]",
    inherited: Sequence["Connection[Any, Any]"],
    flags: mmap.mmap,
    number: int,
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
        results.put(_packed(make, place, flags, number))


def _send(connection: "Connection[Any, Any]", results: "queue.SimpleQueue[memoryview]") -> None:
    """Send results in a thread, so that a full connection does not delay the next batch."""
    with contextlib.suppress(OSError):
        while True:
            connection.send_bytes(results.get())


def _packed(make: Callable[[Any], Any], place: object, flags: mmap.mmap, number: int) -> memoryview:
    """Return a batch as bytes, with its tensors in shared memory if that has room, or the error."""
    try:
        batch = make(place)
        # set before flags[0] is read, while `_Workers.end` sets flags[0] before it reads this one:
        # either this worker packs nothing, or `end` waits for it
        flags[number] = 1
        return memoryview(b"") if flags[0] else pack_batch(batch)
    except Exception as error:  # raised again in the parent process
        return ForkingPickler.dumps(_Failure(pickled_error(_with_traceback(error))))
    finally:
        flags[number] = 0


def _with_traceback(error: Exception) -> Exception:
    """Return the error with its traceback as a note; an error of /dev/shm is explained instead."""
    text = str(error)
    if "/torch_" in text and ("No space left" in text or "allocate shared memory" in text):
        error = _full_shared_memory(text.partition(" (")[0])
    where = "".join(traceback.format_exception(error))
    error.add_note(f"In a process that loads images:\n{where}")
    return error


def _pinned(
    batches: Iterator[Batch],
    pin: Callable[[Batch], Batch],
    workers: _Workers[Place, Batch],
) -> Iterator[Batch]:
    """Yield pinned batches; a thread receives and pins them while this one computes."""
    ready: queue.Queue[Batch | _Ended] = queue.Queue(BATCHES_AHEAD)
    device = torch.cuda.current_device() if torch.cuda.is_available() else None

    def receive() -> None:
        if device is not None:
            torch.cuda.set_device(device)  # else this thread would take the first GPU
        try:
            for batch in batches:
                ready.put(pin(batch))
        except BaseException as error:  # raised again in the thread that waits
            ready.put(_Ended(error))
        else:
            ready.put(_Ended(None))

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    try:
        while not isinstance(batch := ready.get(), _Ended):
            yield batch
        if batch.error is not None:
            raise batch.error
    finally:
        workers.end()
        while thread.is_alive():
            with contextlib.suppress(queue.Empty):
                ready.get_nowait()
            thread.join(0.01)
