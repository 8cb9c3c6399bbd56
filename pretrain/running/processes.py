"""The processes of a run: started by torchrun, or a single one."""

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

BARRIER_S = 600.0
"""Longest wait for the other processes at the start of a run.
Also the longest wait of rank 0 in `wait_for_all`."""
WORK_S = 24 * 3600.0
"""Longest wait while rank 0 works alone.
It may check data, compute an average precision, or draw a gallery. Collectives have torch's limits
of ten or thirty minutes."""
FIRST_LINE_S, LINE_INTERVAL_S = 5.0, 60.0
"""Time until the first message of a wait, and between messages."""
LOOK_AGAIN_S, CONNECTION_S = 0.2, 2.0
"""Time between two checks of the other processes.
Also the time limit of one attempt to connect to rank 0."""
LAUNCHERS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""Variables in which srun and mpirun store the number of processes."""
DRIVER_DEVICES = ("/dev/nvidiactl", "/dev/nvmap", "/dev/kfd", "/dev/dxg")
"""Devices of drivers for torch.cuda: NVIDIA, NVIDIA Tegra, AMD, Windows."""
LOST_PEER = "process {} has lost another process of the run, whose own messages name the cause"
STOPPED, FAILED = "stopped", "failed"
"""Keys under which a process that leaves stores the reason."""


class LaunchError(SuiteError, ValueError):
    """The run cannot start here with these options."""


class LostProcessError(SuiteError, RuntimeError):
    """Another process has not started, hangs, or has ended early."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """Rank and device of this process, and number of processes."""

    rank: int = 0
    num_processes: int = 1
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes records and prints."""
        return self.rank == 0


_assumed_gpus: ContextVar[int | None] = ContextVar("assumed_gpus", default=None)


def num_gpus() -> int:
    """Return the number of GPUs, or the one of `assume_gpus`."""
    assumed = _assumed_gpus.get()
    if assumed is not None:
        return assumed
    # no driver means no GPU, so plans need not import torch
    if "torch" not in sys.modules and not any(Path(device).exists() for device in DRIVER_DEVICES):
        return 0
    import torch

    return torch.cuda.device_count()


def has_bfloat16() -> bool:
    """Return whether the GPUs support bfloat16; those before Ampere only emulate it.

    Without a GPU it is True, since the plan is for another machine.
    """
    import torch

    has_gpu = torch.cuda.is_available()
    return not has_gpu or torch.cuda.is_bf16_supported(including_emulation=False)


def tf32_convolutions() -> bool:
    """Return whether float32 convolutions use TF32 here, with 10 bits of mantissa.

    PyTorch allows it for convolutions, but not for other products; GPUs support it since Ampere.
    """
    import torch

    if not torch.cuda.is_available():
        return False
    cudnn: Any = torch.backends.cudnn
    try:
        allowed: bool = cudnn.allow_tf32
    except RuntimeError:  # since torch 2.9, another attribute may set it only for convolutions
        allowed = cudnn.conv.fp32_precision == "tf32"
    return allowed and torch.cuda.get_device_capability() >= (8, 0)


@contextmanager
def assume_gpus(count: int) -> Iterator[None]:
    """Make `num_gpus` return this count, to plan for another machine."""
    token = _assumed_gpus.set(count)
    try:
        yield
    finally:
        _assumed_gpus.reset(token)


class _OpenGroup:
    """The barriers of the process group opened by `process_group`, if any.

    A caller's process group is not used.
    """

    barriers: Barriers | None = None


def has_own_group() -> bool:
    """Return whether the suite, not its caller, has opened a process group."""
    import torch.distributed as dist

    return _OpenGroup.barriers is not None and dist.is_initialized()


def this_process(*, cuda: bool = True) -> Process:
    """Return rank and device of this process.

    The device is a GPU if available and `cuda` is true. Inside a process group opened by the
    caller, such as a user's DDP training, it is a single process: the other ranks may not take
    part. Its device is then the current GPU.
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
    """Return the number of processes that torchrun started; 0 without torchrun.

    Also 0 inside a process group opened by the caller.
    """
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_initialized() and not has_own_group():
        return 0
    return int(os.environ.get("WORLD_SIZE") or 0)


def require_launcher() -> None:
    """Raise LaunchError if several processes cannot find each other.

    An interactive Slurm session has the variables of its allocation, but also a terminal; it is a
    single process.
    """
    count = started_processes()
    names = ("RANK", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in names if not os.environ.get(name)]
    launchers = [name for name in LAUNCHERS if int(os.environ.get(name) or 1) > 1]
    if count > 1 and missing:
        reason = f"WORLD_SIZE is {count}, without {', '.join(missing)}"
    elif count == 0 and launchers and not os.isatty(0):
        reason = f"{launchers[0]} is {os.environ[launchers[0]]}, but WORLD_SIZE is not set"
    else:
        return
    raise LaunchError(
        f"{reason}: the processes of this run cannot find each other. Start it once, with "
        "`python -m slurm ... -- COMMAND` on a cluster, or with `torchrun --nproc-per-node N`"
    )


def any_process(flags: list[bool], process: Process) -> list[bool]:
    """Return, for each flag, whether any process has set it.

    All processes must call this together.
    """
    return [value > 0 for value in largest_of_processes([int(flag) for flag in flags], process)]


def largest_of_processes(values: list[int], process: Process) -> list[int]:
    """Return, for each value, the largest of all processes.

    All processes must call this together.
    """
    import torch
    import torch.distributed as dist

    if process.num_processes == 1:
        return values
    tensor = torch.tensor(values, device=process.device)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    largest: list[int] = tensor.tolist()
    return largest


def indices_of_process(count: int, process: Process) -> Iterator[int]:
    """Yield this process's indices below `count`, which are distributed round-robin.

    After a signal to any process, all raise Stopped, so that none waits for one that has ended. So
    all processes make the same number of iterations, even those with one index less.
    """
    for first in range(0, count, process.num_processes):
        if any_process([stop.is_requested()], process)[0]:
            raise stop.Stopped(stop.EXIT_RESUMABLE)
        if first + process.rank < count:
            yield first + process.rank


@contextmanager
def process_group(*, cuda: bool = True) -> Iterator[Process]:
    """Join torchrun's process group, with nccl on GPUs and gloo on CPUs.

    Without torchrun, it opens none. cuda: use GPUs if available. A process that fails does not
    destroy the group: that would wait for the others, which may be in a collective and notice only
    when it ends.
    """
    import torch
    import torch.distributed as dist

    require_launcher()
    if started_processes() <= 1:
        yield this_process(cuda=cuda)
        return
    # not of this_process: planning may have started CUDA, which then looks like a caller's
    gpu = _gpu_of_local_rank() if cuda and torch.cuda.is_available() else None
    if gpu is not None:
        torch.cuda.set_device(gpu)
    rank, count = int(os.environ["RANK"]), started_processes()
    with stop.end_of_waits(spinning=gpu is not None), _stopped_together(rank):
        barriers = Barriers(_store(rank, count), rank, count)
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        try:
            barriers.wait(f"at {address}", BARRIER_S)
            backend = "gloo" if gpu is None else "nccl"
            dist.init_process_group(
                backend, store=barriers.store, rank=rank, world_size=count, device_id=gpu
            )
            _OpenGroup.barriers = barriers
            yield this_process(cuda=cuda)
        except BaseException as error:
            barriers.leave(stopped=isinstance(error, stop.Stopped))
            raise
        dist.destroy_process_group()
        _OpenGroup.barriers = None


def _gpu_of_local_rank() -> torch.device:
    """Return the GPU of this process, one of several on this machine."""
    import torch

    local_rank, count = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
    if local_rank >= count:
        raise LaunchError(
            f"LOCAL_RANK is {local_rank}, but torch.cuda.device_count() is {count}: start one "
            f"process per GPU, such as with `torchrun --nproc-per-node {count}`"
        )
    return torch.device("cuda", local_rank)


@contextmanager
def _stopped_together(rank: int) -> Iterator[None]:
    """Raise LostProcessError for errors of collectives after a signal.

    Other processes may have stopped because of the signal.
    """
    try:
        yield
    except RuntimeError as error:  # of a collective; gloo and NCCL have no error types
        if isinstance(error, SuiteError) or not stop.is_requested():
            raise
        raise LostProcessError(LOST_PEER.format(rank)) from error


def _store(rank: int, count: int) -> Store:
    """Return this start's part of the store of rank 0 or torchrun."""
    from torch.distributed import DistError, PrefixStore, TCPStore  # type: ignore[attr-defined]

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    if not serves:
        _wait_for_port(host, port, count)
    limit = timedelta(seconds=BARRIER_S)
    try:
        store = TCPStore(host, port, count, serves, limit, wait_for_workers=False)
    except DistError as error:  # the port is in use, or the address is another machine's
        raise LaunchError(f"{host}:{port}: {str(error).partition(chr(10))[0]}") from error
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"ssl-benchmark-{start}", store)


def _wait_for_port(host: str, port: int, count: int) -> None:
    """Wait until rank 0 accepts connections.

    torch would print a stack trace for each attempt.
    """
    messages = _WaitMessages(f"waiting for process 0 of {count} at {host}:{port}", BARRIER_S)
    while True:
        try:
            socket.create_connection((host, port), CONNECTION_S).close()
            return
        except OSError:
            stop.exit_if_requested()
            messages.check()
            time.sleep(LOOK_AGAIN_S)


class _WaitMessages:
    """Messages of a waiting process, until LostProcessError after the time limit."""

    def __init__(self, text: str, limit_s: float) -> None:
        self.text, self.limit_s = text, limit_s
        self.start_s = time.monotonic()
        self.next_s = FIRST_LINE_S

    def check(self, *, printed: bool = True) -> None:
        """Print a line if it is time.

        Raises LostProcessError after the time limit.
        """
        waited_s = time.monotonic() - self.start_s
        if waited_s > self.limit_s:
            raise LostProcessError(
                f"{self.text} ended after {format_duration(self.limit_s)}. Make sure that the "
                "launcher has started all processes and that they run, then start them again"
            )
        if waited_s >= self.next_s:
            self.next_s += LINE_INTERVAL_S
            if printed:
                print_line(f"{self.text} ({format_duration(waited_s)})")


class Barriers:
    """Barriers of the processes of a run, in Python.

    In contrast to a collective, a wait prints its reason, and a signal ends it at once.
    """

    def __init__(self, store: Store, rank: int, count: int) -> None:
        self.store, self.rank, self.count = store, rank, count
        self.number = 0

    def wait(self, purpose: str, limit_s: float) -> None:
        """Wait until all processes have arrived; LostProcessError after the time limit.

        Stopped after a signal to this process, or to another one that was waiting.
        """
        self.number += 1
        self._await(f"arrived {self.number}", purpose, limit_s)
        # process 0 may serve the store and may end next: first, all must have seen its arrival
        continued = f"continued {self.number}"
        if self.rank:
            self.store.add(continued, 1)
        else:
            self._await(continued, purpose, limit_s)

    def _await(self, key: str, purpose: str, limit_s: float) -> None:
        missing = self.count - self.store.add(key, 1)
        text = "waiting for {} of {} processes {}"
        messages = _WaitMessages(text.format(missing, self.count, purpose), limit_s)
        while missing:
            if stop.is_requested() or self.store.check([STOPPED]):
                raise stop.Stopped(stop.EXIT_RESUMABLE)
            if self.store.check([FAILED]):
                raise LostProcessError(LOST_PEER.format(self.rank))
            messages.text = text.format(missing, self.count, purpose)
            messages.check(printed=self.rank < 2)  # all may be waiting for process 0
            time.sleep(LOOK_AGAIN_S)
            missing = self.count - self.store.add(key, 0)

    def leave(self, *, stopped: bool) -> None:
        """Tell waiting processes that this one will not arrive."""
        with suppress(RuntimeError):  # the process that served the store has ended
            self.store.set(STOPPED if stopped else FAILED, "")
            if not self.rank:  # process 0 may serve the store
                time.sleep(2 * LOOK_AGAIN_S)


def wait_for_all(purpose: str, *, all_work: bool = False) -> None:
    """Wait until all processes of the run have arrived.

    Rank 0 may work alone before it arrives, so the others wait up to a day. Rank 0 waits only for
    minutes.
    purpose: the work of missing processes, such as "that prepare the data".
    all_work: the other processes have as much work as rank 0.
    """
    if has_own_group() and (barriers := _OpenGroup.barriers) is not None:
        barriers.wait(purpose, WORK_S if all_work or barriers.rank else BARRIER_S)


def pickled_error(error: Exception) -> bytes:
    """Return bytes from which pickle.loads restores the same error.

    An error that cannot be restored, such as one whose constructor takes other arguments, becomes a
    RuntimeError with its type and message. Notes are preserved, causes and tracebacks are not.
    """
    with suppress(Exception):  # a library's error class may raise anything while it is copied
        content = pickle.dumps(error)
        copy = pickle.loads(content)
        if type(copy) is type(error) and str(copy) == str(error):
            return content
    substitute = RuntimeError(f"{type(error).__name__}: {error}")
    for note in getattr(error, "__notes__", ()):
        substitute.add_note(note)
    return pickle.dumps(substitute)
