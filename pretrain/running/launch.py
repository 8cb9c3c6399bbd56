"""Processes and devices of a run, and its folder, which belongs to one run at a time."""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

import torch
import torch.distributed as dist

DeviceChoice = Literal["auto", "cpu", "cuda"]


class LaunchError(ValueError):
    """The run cannot start here as asked."""


class LostProcessError(RuntimeError):
    """Another process of the run has ended in the midst of it."""


LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process")
"""What gloo and NCCL say of it."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """This process among those of the run."""

    rank: int = 0
    num_processes: int = 1
    device: torch.device

    @property
    def speaks(self) -> bool:
        """Whether it writes files and talks to the console."""
        return self.rank == 0


@contextmanager
def launched(choice: DeviceChoice) -> Iterator[Process]:
    """Join the processes that torchrun started, nccl on GPUs and gloo on CPUs, or be alone.

    A LostProcessError tells that another one has left too early. A process that fails does not wait
    for the others to let it go: they notice when it ends.
    """
    if choice == "cuda" and not torch.cuda.is_available():
        raise LaunchError("--device cuda, but this machine has no CUDA device; use --device cpu")
    cuda = choice != "cpu" and torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else "cpu"
    if cuda:
        torch.cuda.set_device(device)
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        yield Process(device=torch.device(device))
        return
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield Process(
            rank=dist.get_rank(), num_processes=dist.get_world_size(), device=torch.device(device)
        )
    except RuntimeError as error:
        reason = next((words for words in LOST if words in str(error)), None)
        if reason is None:
            raise
        raise LostProcessError(
            f"process {dist.get_rank()} has lost another process of the run ({reason}), whose own "
            f"messages tell why"
        ) from error
    dist.destroy_process_group()


def leave(status: int) -> NoReturn:
    """End this process. One of several ends at once, whatever its threads are waiting for."""
    sys.stdout.flush()
    sys.stderr.flush()
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        # torch 2.15 keeps gloo's threads where DDP was used, and they may abort a usual end
        os._exit(status)
    sys.exit(status)


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold a run's folder, made if absent; a LaunchError if another run has it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a+") as lock:
        try:
            # of the process, not of the open file: a worker that outlives its run holds nothing
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            raise LaunchError(
                f"{folder} is in use by another run (process {owner}); "
                f"wait for it or choose another --out"
            ) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()} on {os.uname().nodename}\n")
        lock.flush()
        yield
