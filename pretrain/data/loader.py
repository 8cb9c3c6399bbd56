"""Worker processes that prepare batches and that end with the run, however the run ends.

torch's DataLoader starts them. Used alone, it hangs at the end of a process whose workers ignore
SIGTERM, it wraps the errors of workers, and it raises a worker's death out of any statement.
"""

import atexit
import ctypes
import os
import pickle
import shutil
import signal
import sys
import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import active_children
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from pretrain.pixels.crop_cpu import worker_threads
from pretrain.running.progress import print_line
from pretrain.running.stop import SIGNALS

END_S = 5.0
"""Seconds to wait for a killed worker to end."""
DEATH_S = 1.0
"""Seconds to wait, after an error, for the death of a worker that may be its cause."""
PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>
SHARED_MEMORY = Path("/dev/shm")
RESERVE_BYTES = 2**24
"""Bytes that are left to others in shared memory, such as NCCL."""
ENOUGH_BYTES = 2**30
"""Shared memory with which copies are rare, so that nothing is said about them."""


class WorkerError(RuntimeError):
    """A worker process has died."""


def load_ahead(
    dataset: Dataset[list[Tensor]], steps: range, *, workers: int, pin_memory: bool
) -> Generator[list[Tensor], None, None]:
    """Yield `dataset[step]` for each step; `workers` processes compute them ahead, 0: this one.

    Its tensors may have any shapes, such as views (V * n, S, S, 3).
    An error of the data set is raised unchanged. A WorkerError says what has probably killed a
    worker. The workers end when the generator ends or is closed, and when this process ends.
    """
    if not workers:
        for step in steps:
            batch = dataset[step]
            yield [part.pin_memory() for part in batch] if pin_memory else batch
        return
    note_small_shared_memory()
    loader = DataLoader(
        _WorkerDataset(dataset),
        batch_size=None,  # a sample is a whole step
        sampler=steps,
        num_workers=workers,
        pin_memory=pin_memory,
        worker_init_fn=partial(_prepare_worker, os.getpid()),
        multiprocessing_context="fork",  # the lists of files are shared and not copied
    )
    with _start_workers(loader) as (batches, processes):
        for _ in steps:
            batch = _next(batches, processes)
            if isinstance(batch, _Failure):
                raise batch.error
            yield batch.tensors() if isinstance(batch, _Copies) else batch


@contextmanager
def _start_workers(
    loader: DataLoader[Any],
) -> Iterator[tuple[Iterator[Any], list[BaseProcess]]]:
    """Start a loader's workers, and kill them at the end; they hold nothing worth saving."""
    batches: Any = None
    processes: list[BaseProcess] = []
    others = set(active_children())
    # if nobody closes the generator, multiprocessing would wait for the workers at exit, forever
    at_exit = atexit.register(lambda: _kill(processes))
    try:
        reaction = signal.getsignal(signal.SIGCHLD)
        with _block_signals(SIGNALS):  # a worker unblocks them as soon as it ignores them
            try:
                batches = iter(loader)
            finally:
                processes += [child for child in active_children() if child not in others]
        if signal.getsignal(signal.SIGCHLD) is not reaction:
            # torch's handler raises a worker's death out of any statement; `_next` sees it as well
            signal.signal(signal.SIGCHLD, reaction)
        yield batches, processes
    finally:
        with _block_signals((*SIGNALS, signal.SIGCHLD)):
            _kill(processes)
            if batches is not None:
                # this ends threads and queues, which an error in flight keeps alive
                batches._shutdown_workers()
        atexit.unregister(at_exit)


@contextmanager
def _block_signals(signals: Sequence[signal.Signals]) -> Iterator[None]:
    """Hold back signals to this thread, and to processes that it starts, until the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _kill(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join(END_S)


def _next(batches: Iterator[Any], processes: list[BaseProcess]) -> Any:
    """Return the next batch; raise a WorkerError if a worker has died.

    torch looks for dead workers after five seconds without a batch.
    """
    try:
        return next(batches)
    except (EOFError, OSError, RuntimeError) as error:
        # a connection breaks a moment before its worker counts as dead
        ended = wait([process.sentinel for process in processes], timeout=DEATH_S)
        for process in processes:
            if process.sentinel in ended:
                process.join(DEATH_S)
        dead = [process for process in processes if process.exitcode]
        if not dead:
            raise
        raise WorkerError(_cause_of_death(dead[0])) from error


def _cause_of_death(process: BaseProcess) -> str:
    code = process.exitcode or 0
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"has exited with {code}"
    advice = {
        -signal.SIGKILL: "; memory has probably run out: pass fewer --workers or give more memory",
        -signal.SIGBUS: f"; {_shared_memory_advice()}",
    }.get(code, "")
    return (
        f"worker process {process.pid} {how}{advice}. "
        f"The same command goes on from the last checkpoint"
    )


def _shared_memory_advice() -> str:
    return (
        f"{SHARED_MEMORY}, through which workers send batches, is probably full: make room there "
        "(docker run --shm-size=8g), or pass fewer --workers"
    )


@dataclass(frozen=True)
class _Failure:
    """An error, which a worker sends in place of a batch."""

    error: Exception


@dataclass(frozen=True)
class _Copies:
    """A batch that finds no room in shared memory, such as the 64 MB of many containers.

    Arrays travel through the worker's connection, which is slower.
    """

    arrays: list[NDArray[Any]]

    def tensors(self) -> list[Tensor]:
        """Return the batch."""
        return [torch.from_numpy(array) for array in self.arrays]

    def pin_memory(self) -> list[Tensor]:
        """Return the batch in pinned memory; DataLoader calls this where it pins."""
        return [tensor.pin_memory() for tensor in self.tensors()]


class _WorkerDataset(Dataset["list[Tensor] | _Copies | _Failure"]):
    """A data set for workers: batches in shared memory or as copies, and errors as a _Failure."""

    def __init__(self, dataset: Dataset[list[Tensor]]) -> None:
        self.dataset = dataset

    def __getitem__(self, step: int) -> list[Tensor] | _Copies | _Failure:
        try:
            # shared here and not in the thread that sends them, whose errors would reach nobody
            return _move_to_shared_memory(self.dataset[step])
        except Exception as error:  # raised again in the parent process
            return _Failure(_make_portable(error))


def _move_to_shared_memory(batch: list[Tensor]) -> list[Tensor] | _Copies:
    """Return a batch in shared memory, or copies of its values if there is too little of it."""
    needed = sum(part.untyped_storage().nbytes() for part in batch)
    if shutil.disk_usage(SHARED_MEMORY).free >= needed + RESERVE_BYTES:
        # other processes may be faster, and then there is no room after all
        with suppress(OSError, RuntimeError):
            return [part.share_memory_() for part in batch]
    return _Copies([part.numpy() for part in batch])


@cache
def note_small_shared_memory() -> None:
    """Print one line, once per process, if batches will often find no room in shared memory."""
    total = shutil.disk_usage(SHARED_MEMORY).total
    if total < ENOUGH_BYTES:
        print_line(
            f"note: {SHARED_MEMORY} has {total / 1e6:,.0f} MB; batches that find no room there are "
            f"copied, which is slower; make it larger (docker run --shm-size=8g)"
        )


def _make_portable(error: Exception) -> Exception:
    """Return the error with the worker's traceback as a note, as text if it does not pickle."""
    note = f"In a worker process:\n{traceback.format_exc()}"
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # an error class of a library may raise anything while it is copied
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(note)
    return error


def _prepare_worker(parent: int, worker: int) -> None:
    # the main process decides when to stop; a scheduler signals every process of a job
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before prctl took effect
        os._exit(1)
    worker_threads()
