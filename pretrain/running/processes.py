"""The processes of a run: those that torchrun started, or a single one."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pretrain.running import stop
from pretrain.running.console import format_duration, print_line
from pretrain.running.errors import SuiteError

if TYPE_CHECKING:
    import torch
    from torch.distributed.distributed_c10d import Store

MEETING_S = 600.0
"""Longest wait for the other processes of a run when it starts, and of rank 0 in `wait_for_all`."""
WORK_S = 24 * 3600.0
"""Longest wait while rank 0 lists or checks data, counts an average precision or draws a gallery.
In collectives the limits of torch count, of ten or thirty minutes."""
FIRST_LINE_S, LINE_INTERVAL_S = 5.0, 60.0
"""Time until a waiting process says what it waits for, and between such lines."""
LOOK_AGAIN_S, CONNECTION_S = 0.2, 2.0
"""Time between two looks at the other processes; limit of one attempt to find rank 0."""
LAUNCHERS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""Variables in which srun and mpirun say how many processes they have started."""
DRIVER_DEVICES = ("/dev/nvidiactl", "/dev/nvmap", "/dev/kfd", "/dev/dxg")
"""Devices of the drivers that torch.cuda works with: NVIDIA's, its Tegra's, AMD's, Windows'."""
LOST_PEER = "process {} has lost another process of the run, whose own messages name the cause"
STOPPED, FAILED = "stopped", "failed"
"""Keys under which a process that leaves tells why."""


class LaunchError(SuiteError, ValueError):
    """The run cannot start here with these options."""


class LostProcessError(SuiteError, RuntimeError):
    """Another process of the run has not come, hangs, or has ended before the run did."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """Rank and device of this process, and the number of processes of the run."""

    rank: int = 0
    num_processes: int = 1
    device: torch.device

    @property
    def is_main(self) -> bool:
        """True for the process that writes records and prints, which is rank 0."""
        return self.rank == 0


_assumed_gpus: ContextVar[int | None] = ContextVar("assumed_gpus", default=None)


def num_gpus() -> int:
    """Return the number of GPUs of this machine, or the one set by `assume_gpus`."""
    assumed = _assumed_gpus.get()
    if assumed is not None:
        return assumed
    # without a driver there is no GPU to count, and a plan is spared the import of torch
    if "torch" not in sys.modules and not any(Path(device).exists() for device in DRIVER_DEVICES):
        return 0
    import torch

    return torch.cuda.device_count()


def has_bfloat16() -> bool:
    """Return whether the GPUs multiply in bfloat16; those before Ampere emulate it.

    True without a GPU, where the question is for another machine.
    """
    import torch

    there = torch.cuda.is_available()
    return not there or torch.cuda.is_bf16_supported(including_emulation=False)


def tf32_convolutions() -> bool:
    """Return whether float32 convolutions run in TF32 here, with 10 bits of mantissa.

    PyTorch allows it for convolutions, not for other products; GPUs have it since Ampere.
    """
    import torch

    if not torch.cuda.is_available():
        return False
    cudnn: Any = torch.backends.cudnn
    try:
        allowed: bool = cudnn.allow_tf32
    except RuntimeError:  # set for convolutions alone, by an attribute since torch 2.9
        allowed = cudnn.conv.fp32_precision == "tf32"
    return allowed and torch.cuda.get_device_capability() >= (8, 0)


@contextmanager
def assume_gpus(count: int) -> Iterator[None]:
    """Make `num_gpus` return this count within the context, to plan for another machine."""
    token = _assumed_gpus.set(count)
    try:
        yield
    finally:
        _assumed_gpus.reset(token)


class _Opened:
    """Meetings of the process group that `process_group` has opened; a caller's own is not used."""

    meetings: Meetings | None = None


def has_own_group() -> bool:
    """Return whether the suite itself, not the code that calls it, has opened a process group."""
    import torch.distributed as dist

    return _Opened.meetings is not None and dist.is_initialized()


def this_process(*, cuda: bool = True) -> Process:
    """Return rank and device of this process, a GPU if there is one and cuda is true.

    Inside a process group that somebody else has opened, such as the one of a user's DDP training,
    it is a single process: the other ranks may not take part. Its GPU is then the current one.
    """
    import torch
    import torch.distributed as dist

    if not (cuda and torch.cuda.is_available()):
        device = torch.device("cpu")
    elif torch.cuda.is_initialized() and not has_own_group():
        device = torch.device("cuda", torch.cuda.current_device())
    else:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    if not has_own_group():
        return Process(device=device)
    return Process(rank=dist.get_rank(), num_processes=dist.get_world_size(), device=device)


def started_processes() -> int:
    """Return the number of processes that torchrun started for this run, 0 without torchrun.

    Also 0 inside a process group that somebody else has opened.
    """
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_initialized() and not has_own_group():
        return 0
    return int(os.environ.get("WORLD_SIZE") or 0)


def require_launcher() -> None:
    """Raise a LaunchError in one of several processes that cannot find each other.

    An interactive session of Slurm has the variables of its allocation, and a terminal; it is one
    process.
    """
    count = started_processes()
    names = ("RANK", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in names if not os.environ.get(name)]
    if count > 1 and missing:
        reason = f"WORLD_SIZE is {count}, without {', '.join(missing)}"
    elif count == 0 and not os.isatty(0):
        counts = {name: int(os.environ.get(name) or 1) for name in LAUNCHERS}
        started = next((name for name in LAUNCHERS if counts[name] > 1), "")
        reason = f"{started} is {counts[started]}, but WORLD_SIZE is not set" if started else ""
    else:
        reason = ""
    if reason:
        raise LaunchError(
            f"{reason}: the processes of this run cannot find each other. Start it once, by "
            "`python -m slurm ... -- COMMAND` on a cluster, or by `torchrun --nproc-per-node N`"
        )


def any_process(wishes: list[bool], process: Process) -> list[bool]:
    """Return, for each wish, whether any process has it; all processes must call this together."""
    import torch
    import torch.distributed as dist

    if process.num_processes == 1:
        return wishes
    flags = torch.tensor(wishes, dtype=torch.int32, device=process.device)
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    return [bool(flag) for flag in flags.tolist()]


def indices_of_process(count: int, process: Process) -> Iterator[int]:
    """Yield this process's indices below `count`, which are dealt to the processes in turn.

    After a signal to any process, all raise Stopped, so that none waits for one that is gone. All
    processes therefore take the same number of turns, also those with one index less.
    """
    for first in range(0, count, process.num_processes):
        if any_process([stop.is_requested()], process)[0]:
            raise stop.Stopped(stop.EXIT_RESUMABLE)
        if first + process.rank < count:
            yield first + process.rank


@contextmanager
def process_group(*, cuda: bool = True) -> Iterator[Process]:
    """Join torchrun's process group, by nccl on GPUs and gloo on CPUs; without torchrun, none.

    cuda: use GPUs if there are any. A process that fails does not leave the group: that would wait
    for the others, which may be in a collective and notice only when it ends.
    """
    import torch
    import torch.distributed as dist

    require_launcher()
    if started_processes() <= 1:
        yield this_process(cuda=cuda)
        return
    device = this_process(cuda=cuda).device
    gpu = device if device.type == "cuda" else None
    if gpu is not None:
        torch.cuda.set_device(gpu)
    rank, count = int(os.environ["RANK"]), started_processes()
    with stop.end_of_waits(spinning=gpu is not None), _stopped_together(rank):
        meetings = Meetings(_store(rank, count), rank, count)
        place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        try:
            meetings.wait(f"at {place}", MEETING_S)
            backend = "gloo" if gpu is None else "nccl"
            dist.init_process_group(
                backend, store=meetings.store, rank=rank, world_size=count, device_id=gpu
            )
            _Opened.meetings = meetings
            yield this_process(cuda=cuda)
        except BaseException as error:
            meetings.leave(stopped=isinstance(error, stop.Stopped))
            raise
        dist.destroy_process_group()
        _Opened.meetings = None


@contextmanager
def _stopped_together(rank: int) -> Iterator[None]:
    """Raise LostProcessError for an error after a signal, which other processes may have obeyed."""
    try:
        yield
    except RuntimeError as error:  # of a collective; neither gloo nor NCCL has types for theirs
        if isinstance(error, SuiteError) or not stop.is_requested():
            raise
        raise LostProcessError(LOST_PEER.format(rank)) from error


def _store(rank: int, count: int) -> Store:
    """Connect to the store that rank 0 or torchrun serves, and return this start's part of it."""
    from torch.distributed import DistError, PrefixStore, TCPStore  # type: ignore[attr-defined]

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    if not serves:
        _wait_for_port(host, port, count)
    limit = timedelta(seconds=MEETING_S)
    try:
        store = TCPStore(host, port, count, serves, limit, wait_for_workers=False)
    except DistError as error:  # a port in use, or the address of another machine
        raise LaunchError(f"{host}:{port}: {str(error).partition(chr(10))[0]}") from error
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"ssl-benchmark-{start}", store)


def _wait_for_port(host: str, port: int, count: int) -> None:
    """Wait until rank 0 accepts connections; torch would print a stack for each attempt."""
    notes = _Notes(f"waiting for process 0 of {count} at {host}:{port}", MEETING_S)
    while True:
        try:
            socket.create_connection((host, port), CONNECTION_S).close()
            return
        except OSError:
            stop.exit_if_requested()
            notes.look()
            time.sleep(LOOK_AGAIN_S)


class _Notes:
    """Lines of a process that waits; the wait ends with a LostProcessError."""

    def __init__(self, text: str, patience_s: float) -> None:
        self.text, self.patience_s = text, patience_s
        self.start_s = time.monotonic()
        self.next_s = FIRST_LINE_S

    def look(self, *, printed: bool = True) -> None:
        """Print a line if it is time for one; LostProcessError after the patience."""
        waited_s = time.monotonic() - self.start_s
        if waited_s > self.patience_s:
            raise LostProcessError(
                f"{self.text} ended after {format_duration(self.patience_s)}; see that the "
                "launcher has started all processes and that they run, then start them again"
            )
        if waited_s >= self.next_s:
            self.next_s += LINE_INTERVAL_S
            if printed:
                print_line(f"{self.text} ({format_duration(waited_s)})")


class Meetings:
    """Points at which the processes of a run wait for each other, in Python.

    Unlike in a collective, the wait says what it is for, and a signal ends it at once.
    """

    def __init__(self, store: Store, rank: int, count: int) -> None:
        self.store, self.rank, self.count = store, rank, count
        self.number = 0

    def wait(self, what: str, patience_s: float) -> None:
        """Wait until all processes are here; LostProcessError after the patience.

        Stopped if a signal comes to this process, or came to one that was waiting.
        """
        self.number += 1
        self._await(f"arrived {self.number}", what, patience_s)
        # process 0 may serve the store, and may end next: the others must have seen its arrival
        gone = f"gone on {self.number}"
        if self.rank:
            self.store.add(gone, 1)
        else:
            self._await(gone, what, patience_s)

    def _await(self, key: str, what: str, patience_s: float) -> None:
        missing = self.count - self.store.add(key, 1)
        text = "waiting for {} of {} processes {}"
        notes = _Notes(text.format(missing, self.count, what), patience_s)
        while missing:
            if stop.is_requested() or self.store.check([STOPPED]):
                raise stop.Stopped(stop.EXIT_RESUMABLE)
            if self.store.check([FAILED]):
                raise LostProcessError(LOST_PEER.format(self.rank))
            notes.text = text.format(missing, self.count, what)
            notes.look(printed=self.rank < 2)  # process 0 may be the one that is waited for
            time.sleep(LOOK_AGAIN_S)
            missing = self.count - self.store.add(key, 0)

    def leave(self, *, stopped: bool) -> None:
        """Tell the processes that wait for this one that it does not come."""
        with suppress(RuntimeError):  # the store is gone with the process that served it
            self.store.set(STOPPED if stopped else FAILED, "")
            if not self.rank:  # which may serve the store
                time.sleep(2 * LOOK_AGAIN_S)


def wait_for_all(what: str, *, all_work: bool = False) -> None:
    """Wait until all processes of the run are here.

    Rank 0 works alone before it comes, for which the others wait up to a day. It waits for minutes.
    what: what the missing ones are doing, such as "that prepare the data".
    all_work: the others have as much to do before they come as rank 0.
    """
    if has_own_group() and (meetings := _Opened.meetings) is not None:
        meetings.wait(what, WORK_S if all_work or meetings.rank else MEETING_S)


class _Rebuilt:
    """A pickled error whose constructor takes other arguments than a message."""

    def __init__(self, error: Exception) -> None:
        self.parts = type(error), error.args, error.__dict__

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, self.parts


def _rebuild(kind: type[Exception], args: tuple[Any, ...], state: dict[str, Any]) -> Exception:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def pickled_error(error: Exception) -> bytes:
    """Return bytes from which pickle.loads restores the same error.

    An error that cannot be pickled becomes a RuntimeError with its type and message. Notes are
    kept, causes and tracebacks are not.
    """
    for form in (error, _Rebuilt(error)):
        try:
            content = pickle.dumps(form)
            copy = pickle.loads(content)
        except Exception:  # an error class of a library may raise anything while it is copied
            continue
        if type(copy) is type(error) and str(copy) == str(error):
            return content
    words = RuntimeError(f"{type(error).__name__}: {error}")
    for note in getattr(error, "__notes__", ()):
        words.add_note(note)
    return pickle.dumps(words)
