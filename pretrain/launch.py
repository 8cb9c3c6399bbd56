"""Processes and devices of a run, and its folder, which belongs to one run at a time."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from pretrain.command import DeviceChoice
from pretrain.running.atomic_files import UNFINISHED, WriteError
from pretrain.running.lock import BusyError, lock_folder
from pretrain.running.processes import LaunchError, Process, process_group


@contextmanager
def join_processes(choice: DeviceChoice) -> Iterator[Process]:
    """Join the processes that torchrun started, by nccl on GPUs and gloo on CPUs, or run alone.

    Raises a LostProcessError if another process has ended too early.
    """
    if choice == "cuda" and not torch.cuda.is_available():
        raise LaunchError(
            f"--device {choice}, but this machine has no CUDA device; use --device cpu"
        )
    with process_group(cuda=choice != "cpu") as process:
        yield process


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock a run's folder, which is created if absent, and remove what a killed run has left.

    Raises a LaunchError if a run holds it, if it cannot be written, and if its file system has no
    locks.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_folder(folder, "--out"))
        except (BusyError, WriteError) as error:
            raise LaunchError(str(error)) from error
        for place in (folder, folder / "snapshots"):
            for half in place.glob(f"*{UNFINISHED}"):
                half.unlink(missing_ok=True)
        yield
