"""Batches that worker processes of torch's DataLoader make ahead, in order.

A scheduler sends its signals to every process of a job. The workers ignore them, so that the run
can save and then end the workers. Every error of a worker arrives as the error it was.

Tensors travel in shared memory, which costs no copy. Containers often have only 64 MB of it, or
none: what finds no room there is copied through the connection.
"""

import atexit
import contextlib
import ctypes
import os
import pickle
import shutil
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import lru_cache, partial
from multiprocessing.connection import wait
from multiprocessing.context import ForkContext, ForkProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from pretrain.running import stop
from pretrain.running.console import print_line
from pretrain.running.errors import SuiteError
from pretrain.running.processes import pickled_error

BATCHES_AHEAD = 2
"""Batches that each worker may make or begin before they are requested."""
PATIENCE_S = 5.0
"""Longest wait for a worker that was killed."""
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
    batches = _batches_of_workers(make, places, num_workers) if num_workers else map(make, places)
    yield from batches if pin is None else map(pin, batches)


def _batches_of_workers(
    make: Callable[[Any], Any], places: Iterable[Any], num_workers: int
) -> Iterator[Any]:
    _note_missing_shared_memory()
    context = _Context()
    workers = context.workers
    end = partial(_end, workers)
    atexit.register(end)  # an exception's traceback may hold this generator until then
    received: Any = None
    try:
        # workers inherit the blocked signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, stop.SIGNALS)
        try:
            with _sigchld_handler(signal.SIG_DFL), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "This DataLoader will create")  # more than cores
                loader = DataLoader(
                    _PackedBatches(make),
                    sampler=places,
                    batch_size=None,
                    num_workers=num_workers,
                    prefetch_factor=BATCHES_AHEAD,
                    timeout=LOOK_AGAIN_S,
                    worker_init_fn=partial(_set_up_worker, os.getpid()),
                    multiprocessing_context=context,
                    generator=torch.Generator(),  # the default one keeps its state
                )
                received = iter(loader)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        while (packed := _received(received, workers)) is not None:
            batch = pickle.loads(packed)
            if isinstance(batch, Exception):
                raise batch
            yield batch
    finally:
        end()
        if received is not None:
            # a killed worker may hold the lock of the shared event, which torch sets at the end
            received._workers_done_event = threading.Event()
        del received  # later workers must not inherit it
        atexit.unregister(end)


class _Context(ForkContext):
    """Forks that are known from the start, so that one that fails midway leaves none."""

    def __init__(self) -> None:
        super().__init__()
        self.workers: list[ForkProcess] = []

    def Process(  # type: ignore[override]  # noqa: N802
        self, *args: Any, **options: Any
    ) -> ForkProcess:
        worker = ForkProcess(*args, **options)
        self.workers.append(worker)
        return worker


def _received(batches: Iterator[bytes], workers: list[ForkProcess]) -> bytes | None:
    """Return the next packed batch, or None after the last one."""

    def check(*_: object) -> None:
        for worker in workers:
            if worker.exitcode:  # a worker that has made its last batch exits with 0
                raise _killed(worker.exitcode)

    # the signal interrupts a read of a batch of which a killed worker has sent a part
    with _sigchld_handler(check), stop.own_work():
        while True:
            check()
            try:
                return next(batches, None)
            except RuntimeError as error:
                check()
                if any(worker.exitcode == 0 for worker in workers):
                    raise _killed(0) from error
                if "timed out" not in str(error):
                    raise
                # where SIGCHLD is ignored, nobody learns the exit status
                if wait([worker.sentinel for worker in workers], 0):
                    check()
                    raise _killed(0) from error
            if stop.requested_s() > HANGING_S:  # on a disk that hangs, after a signal
                raise stop.Stopped(stop.EXIT_RESUMABLE)


@contextlib.contextmanager
def _sigchld_handler(handler: Any) -> Iterator[None]:
    """Replace the handler of SIGCHLD; torch's raises wherever the main thread happens to be."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGCHLD, handler)
    try:
        yield
    finally:
        if before is not None:  # else code outside of Python has installed it
            signal.signal(signal.SIGCHLD, before)


def _killed(status: int) -> WorkerKilledError:
    """Return the error for a worker's exit status, with the probable reason."""
    how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    why = "its last words may stand above"
    if status == -signal.SIGKILL:
        why = (
            "most likely because memory ran out: load with fewer processes (--workers of "
            "pretrain; else a smaller --cpus on a cluster, taskset -c 0-3 "
            "before the command elsewhere), or give the run more memory"
        )
    return WorkerKilledError(
        f"a process that loads images has ended ({how}), {why}; the same command goes on"
    )


def _end(workers: list[ForkProcess]) -> None:
    """Kill the workers, and remove what one of them was about to share."""
    workers = [worker for worker in workers if worker.pid]  # without one whose fork failed
    with _sigchld_handler(signal.SIG_DFL):
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join(PATIENCE_S)
    for worker in workers:
        # torch removes the name as soon as the memory is mapped, unless it is killed before
        for file in SHARED_MEMORY.glob(f"torch_{worker.pid}_*"):
            file.unlink(missing_ok=True)


def _set_up_worker(parent: int, _: int) -> None:
    """Let this process end with its parent; its libraries start no threads of their own."""
    ctypes.CDLL(None).prctl(stop.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)


class _PackedBatches(Dataset[bytes]):
    """The batches by their places, as bytes."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.make = make

    def __getitem__(self, place: Any) -> bytes:
        return bytes(_packed(self.make, place))


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
