"""The processes of a run: those that torchrun started, or a single one."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pretrain.running import stop

if TYPE_CHECKING:
    import torch

PATIENCE = timedelta(days=1)
"""Longest wait in a collective: the others wait while rank 0 checks data, counts an average
precision or draws a gallery. torch's own ten minutes would end the job."""
DRIVER_DEVICES = ("/dev/nvidiactl", "/dev/nvmap", "/dev/kfd", "/dev/dxg")
"""Devices of the drivers that torch.cuda works with: NVIDIA's, its Tegra's, AMD's, Windows'."""


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
    """Whether `process_group` has opened the process group of torch; a caller's own is not used."""

    group = False


def has_own_group() -> bool:
    """Return whether the suite itself, not the code that calls it, has opened a process group."""
    import torch.distributed as dist

    return _Opened.group and dist.is_initialized()


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
    return int(os.environ.get("WORLD_SIZE", 0))


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

    if started_processes() <= 1:
        yield this_process(cuda=cuda)
        return
    device = this_process(cuda=cuda).device
    gpu = device if device.type == "cuda" else None
    if gpu is not None:
        torch.cuda.set_device(gpu)
    dist.init_process_group("gloo" if gpu is None else "nccl", timeout=PATIENCE, device_id=gpu)
    _Opened.group = True
    yield this_process(cuda=cuda)
    dist.destroy_process_group()
    _Opened.group = False


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
