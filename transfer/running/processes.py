"""The processes of a run that torchrun started, or the one that is there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
import torch.distributed as dist

from transfer.running import stop


@dataclass(frozen=True, kw_only=True)
class Process:
    """This process among those of the run."""

    rank: int = 0
    num_processes: int = 1
    device: torch.device

    @property
    def speaks(self) -> bool:
        """Whether it writes records and talks to the console."""
        return self.rank == 0


_assumed_gpus: ContextVar[int | None] = ContextVar("assumed_gpus", default=None)


def num_gpus() -> int:
    """Return the number of GPUs of this machine, or of the one that is planned for."""
    assumed = _assumed_gpus.get()
    return torch.cuda.device_count() if assumed is None else assumed


@contextmanager
def assume_gpus(count: int) -> Iterator[None]:
    """Plan for another machine: `num_gpus` returns this count within the context."""
    token = _assumed_gpus.set(count)
    try:
        yield
    finally:
        _assumed_gpus.reset(token)


def this_process() -> Process:
    """Rank, count and device, wherever in a run it is asked."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else "cpu"
    if not dist.is_initialized():
        return Process(device=torch.device(device))
    return Process(
        rank=dist.get_rank(), num_processes=dist.get_world_size(), device=torch.device(device)
    )


def started_processes() -> int:
    """As many as torchrun started, 0 without it."""
    return int(os.environ.get("WORLD_SIZE", 0))


def any_process(wishes: list[bool], process: Process) -> list[bool]:
    """Whether any process has each wish; all processes come here at the same time."""
    if process.num_processes == 1:
        return wishes
    flags = torch.tensor(wishes, dtype=torch.int32, device=process.device)
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    return [bool(flag) for flag in flags.tolist()]


def dealt(count: int, process: Process) -> Iterator[int]:
    """This process's indices among `count`, dealt in turn.

    Raises Stopped where a signal asked any process for it, and on all of them: none is left waiting
    for one that is gone. All take equally many turns for that, if not equally many indices.
    """
    for first in range(0, count, process.num_processes):
        if any_process([stop.asked()], process)[0]:
            raise stop.Stopped(stop.REQUEUE)
        if first + process.rank < count:
            yield first + process.rank


@contextmanager
def joined() -> Iterator[Process]:
    """Join the processes that torchrun started, nccl on GPUs and gloo on CPUs, or be alone."""
    if started_processes() <= 1:
        yield this_process()
        return
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield this_process()
    finally:
        dist.destroy_process_group()
