"""Batches that worker processes of torch's DataLoader prepare in advance, in order.

A scheduler sends its signals to every process of a job. The workers ignore them, so that the run
can first save and then end the workers. Errors of workers are raised unchanged.

Tensors are passed in shared memory, which needs no copy. Containers often have only 64 MB of it, or
none; batches that do not fit are copied through the connection.
"""

import atexit
import contextlib
import ctypes
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from pretrain.running import stop
from pretrain.running.errors import SuiteError
from pretrain.running.processes import pickled_error

BATCHES_AHEAD = 2
"""Batches that each worker may prepare before they are requested."""
PATIENCE_S = 5.0
"""Longest wait for a killed worker."""
SHARED_MEMORY = Path("/dev/shm")

Item = TypeVar("Item")
Batch = TypeVar("Batch")


class WorkerKilledError(SuiteError, RuntimeError):
    """A worker process has ended without raising an error."""


def load_batches(
    make: Callable[[Item], Batch],
    items: Iterable[Item],
    *,
    num_workers: int,
    pin_memory: Callable[[Batch], Batch] | None = None,
) -> Generator[Batch, None, None]:
    """Yield make(item) for each item, in order.

    With 0 workers, this process makes the batches. The workers are forks, so the data that `make`
    refers to is shared, not copied. Errors of `make` are raised here unchanged, with the worker's
    traceback as a note. WorkerKilledError names the probable reason why a worker has ended. The
    workers end with the iteration, however it ends, and with this process or the thread that began
    the iteration. pin_memory: copies a batch to pinned memory, in this process.
    """
    batches = _batches_of_workers(make, items, num_workers) if num_workers else map(make, items)
    yield from batches if pin_memory is None else map(pin_memory, batches)


def _batches_of_workers(
    make: Callable[[Any], Any], items: Iterable[Any], num_workers: int
) -> Iterator[Any]:
    workers: list[BaseProcess] = []
    end = partial(_end, workers)
    atexit.register(end)  # an exception's traceback may keep this generator alive until then
    iterator: Any = None
    try:
        # workers inherit the blocked signals
        old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, stop.SIGNALS)
        try:
            with _sigchld_handler(signal.SIG_DFL), warnings.catch_warnings():
                # more workers than cores are intended
                warnings.filterwarnings("ignore", "This DataLoader will create")
                loader = DataLoader(
                    _PackedBatches(make),
                    sampler=items,
                    batch_size=None,
                    num_workers=num_workers,
                    prefetch_factor=BATCHES_AHEAD,
                    worker_init_fn=partial(_set_up_worker, os.getpid()),
                    multiprocessing_context="fork",
                    generator=torch.Generator(),  # keeps the state of the default generator
                )
                iterator = iter(loader)
                workers += iterator._workers
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
        while (packed := _next_packed(iterator, workers)) is not None:
            batch = _unpacked(packed, workers)
            if isinstance(batch, Exception):
                raise batch
            yield batch
    finally:
        end()
        if iterator is not None:
            # a killed worker may hold the lock of the shared event that torch sets at the end
            iterator._workers_done_event = threading.Event()
        del iterator  # later workers must not inherit it
        atexit.unregister(end)


def _next_packed(batches: Iterator[bytes], workers: list[BaseProcess]) -> bytes | None:
    """Return the next packed batch, or None after the last one."""

    def check(*_: object) -> None:
        for worker in workers:
            if worker.exitcode:  # a worker exits with 0 after its last batch
                raise _killed_error(worker.exitcode)

    # SIGCHLD interrupts the read of a batch that a killed worker has sent in part
    with _sigchld_handler(check), stop.local_work():
        check()
        try:
            return next(batches, None)
        except RuntimeError as error:  # torch has found an ended worker
            check()
            raise _killed_error(0) from error


def _unpacked(packed: bytes, workers: list[BaseProcess]) -> Any:
    """Return a batch, whose tensors the worker shares.

    Raises WorkerKilledError if it cannot, since it was killed after it had sent the batch.
    """
    try:
        return pickle.loads(packed)
    except (EOFError, ConnectionError) as error:
        for worker in workers:
            worker.join(PATIENCE_S / len(workers))
            if worker.exitcode:
                raise _killed_error(worker.exitcode) from error
        raise


@contextlib.contextmanager
def _sigchld_handler(handler: Any) -> Iterator[None]:
    """Replace the handler of SIGCHLD; torch's raises anywhere in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old_handler = signal.signal(signal.SIGCHLD, handler)
    try:
        yield
    finally:
        if old_handler is not None:  # None: it was installed outside of Python
            signal.signal(signal.SIGCHLD, old_handler)


def _killed_error(status: int) -> WorkerKilledError:
    """Return the error for a worker's exit status, with the probable reason."""
    ending = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    reason = "see its last messages above"
    if status == -signal.SIGKILL:
        reason = (
            "most likely because memory ran out: use fewer loader processes (pretrain: --workers; "
            "otherwise a smaller --cpus on a cluster, or taskset -c 0-3 before the command "
            "elsewhere), or give the run more memory"
        )
    return WorkerKilledError(
        f"a process that loads images has ended ({ending}), {reason}. Run the same command to "
        "resume"
    )


def _end(workers: list[BaseProcess]) -> None:
    """Kill the workers, and remove their unmapped shared memory."""
    with _sigchld_handler(signal.SIG_DFL):
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join(PATIENCE_S)
    for worker in workers:
        # torch removes the name once the memory is mapped, unless it is killed before
        for file in SHARED_MEMORY.glob(f"torch_{worker.pid}_*"):
            file.unlink(missing_ok=True)


def _set_up_worker(parent: int, _: int) -> None:
    """End this process with its parent, and disable threads of its libraries."""
    ctypes.CDLL(None).prctl(stop.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)


class _PackedBatches(Dataset[bytes]):
    """The packed batches, indexed by item."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.make = make

    def __getitem__(self, item: Any) -> bytes:
        return _packed(self.make, item)


def _packed(make: Callable[[Any], Any], item: object) -> bytes:
    """Return a pickled batch or error.

    The error has the worker's traceback as a note.
    """
    try:
        batch = make(item)
        try:
            return bytes(ForkingPickler.dumps(batch, protocol=5))
        except RuntimeError:  # too little shared memory is left
            return pickle.dumps(batch, protocol=5)
    except Exception as error:  # raised again in the parent process
        text = "".join(traceback.format_exception(error))
        error.add_note(f"In a process that loads images:\n{text}")
        return pickled_error(error)
