"""Processes and devices of a run, and its folder, which belongs to one run at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from pretrain.command import DeviceChoice
from pretrain.running.atomic_files import UNFINISHED, WriteError, explain_write_errors
from pretrain.running.lock import lock_file
from pretrain.running.processes import Process, process_group


class LaunchError(ValueError):
    """The run cannot start here with these options."""


class LostProcessError(RuntimeError):
    """Another process of the run has ended before the run did."""


LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process")
"""Parts of the messages of gloo and NCCL when another process has ended."""

LOCK = ".lock"
"""File in a run's folder that is locked, and names the process that has locked it last."""


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
        try:
            yield process
        except RuntimeError as error:
            reason = next((words for words in LOST if words in str(error)), None)
            if reason is None:
                raise
            raise LostProcessError(
                f"process {process.rank} has lost another process of the run ({reason}), whose own "
                f"messages name the cause"
            ) from error


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock a run's folder and create it if absent.

    Raises a LaunchError if a run holds it, if it is a file or cannot be written, and if its file
    system has no locks.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+")
    except OSError as error:
        why = "it is a file" if isinstance(error, FileExistsError) else error.strerror or error
        raise LaunchError(
            f"{folder} cannot be the folder of a run ({why}); make it writable or choose "
            f"another --out"
        ) from error
    with file as lock:
        try:
            free = lock_file(lock.fileno())
        except OSError as error:
            raise LaunchError(
                f"{folder} cannot be locked ({error.strerror}); its file system must have locks, "
                f"which keep two runs apart: choose an --out on another one"
            ) from error
        if not free:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            raise LaunchError(
                f"{folder} is in use by another run (process {owner}); "
                f"wait for it or choose another --out"
            )
        with explain_write_errors(folder / LOCK):
            lock.truncate(0)
            lock.write(f"{_owner()}\n")
            lock.flush()
            for place in (folder, folder / "snapshots"):
                for half in place.glob(f"*{UNFINISHED}"):
                    half.unlink(missing_ok=True)  # a killed run has left it
        yield


def require_own_folder(folder: Path) -> None:
    """Raise a WriteError if a run on another machine has locked the folder since this one did.

    That can happen only where locks do not reach from one machine to another.
    """
    lock = folder / LOCK
    owner = lock.read_text(errors="replace").strip() if lock.exists() else ""
    if owner not in ("", _owner()):
        raise WriteError(
            f"{folder} was taken by another run (process {owner}), which goes on from the last "
            f"checkpoint; this one stops. The locks of its file system do not reach from one "
            f"machine to another: start one run there, or choose another --out"
        )


def _owner() -> str:
    return f"{os.getpid()} on {os.uname().nodename}"
