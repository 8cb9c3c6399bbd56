"""The processes of a run that torchrun started, or the one that is there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist


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
