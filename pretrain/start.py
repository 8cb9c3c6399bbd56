"""Start and end of a run: processes, folder, exit status."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pretrain.checkpoint import CheckpointError
from pretrain.command import Command
from pretrain.data.images import DataError, DecodeError, TrainingImages
from pretrain.data.listing import find_images
from pretrain.export import write_backbone
from pretrain.job import cautions, describe, planned_memory, prepare
from pretrain.loop import train
from pretrain.running import stop
from pretrain.running.atomic_files import UNFINISHED, WriteError
from pretrain.running.command_line import exit_status_of
from pretrain.running.console import format_duration, print_line
from pretrain.running.errors import NotFiniteError
from pretrain.running.loader import WorkerKilledError
from pretrain.running.lock import BusyError, lock_folder
from pretrain.running.processes import (
    LaunchError,
    LostProcessError,
    Process,
    process_group,
    require_launcher,
    wait_for_all,
)
from pretrain.running.reading import ReadError
from pretrain.running.torch_versions import is_out_of_memory
from pretrain.settings import SettingsError, check_recipe

FAILURES = DecodeError, LostProcessError, NotFiniteError, OSError, WorkerKilledError
"""Errors of a valid run that failed while running."""

USE_LESS_MEMORY = (
    "To use less memory, pass --checkpoint-activations (same results), use more GPUs, or pass a "
    "smaller --batch-size or --memory-gb"
)
"""Advice after running out of memory."""


def start(name: str, command: Command[Any]) -> int:
    """Run a command; return the exit status of `main`.

    Errors are printed in one line.
    """
    try:
        return run(name, command)
    except stop.Stopped:
        if os.environ.get("RANK", "0") == "0":
            print_line(stop.last_line())
        return stop.EXIT_RESUMABLE
    except (ReadError, *FAILURES) as error:
        print(f"error: {error}", file=sys.stderr)
        return exit_status_of(error)
    except (DataError, LaunchError, CheckpointError, SettingsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            line = str(error).partition("\n")[0]  # the other lines are details
            advice = f"{line.rstrip('.') or 'out of memory'}. {USE_LESS_MEMORY}"
            print(f"error: {advice}", file=sys.stderr)
            return 1
        raise


def broadcast_image_list(command: Command[Any], process: Process) -> TrainingImages:
    """Return, in every process, the images that the main process finds.

    Only one process reads the headers of maybe a million files from a slow disk. A file that is
    added in the meantime cannot make the processes disagree. All raise the error of the main
    process.
    """
    results: list[Any] = [None]
    if process.is_main:
        try:
            results = [find_images(command.data, tolerated=command.tolerated_images)]
        except (DataError, OSError, ReadError) as error:
            results = [error]
    wait_for_all("that list the images")
    if process.num_processes > 1:
        dist.broadcast_object_list(results, device=process.device)
    if isinstance(results[0], Exception):
        raise results[0]
    images: TrainingImages = results[0]
    return images


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock a run's folder, and remove temporary files.

    It is created if missing. A killed run may have left temporary files. Raises LaunchError if
    another run holds the lock, if the folder cannot be written, or if its file system does not
    support locks.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_folder(folder, "--out"))
        except (BusyError, WriteError) as error:
            raise LaunchError(str(error)) from error
        for parent in (folder, folder / "snapshots"):
            for unfinished in parent.glob(f"*{UNFINISHED}"):
                unfinished.unlink(missing_ok=True)
        yield


def run(name: str, command: Command[Any]) -> int:
    """Train, export, and print the result; return the exit status."""
    start_s = time.monotonic()
    stop.listen(at_once=True)
    require_launcher()
    if command.device == "cuda" and not torch.cuda.is_available():
        raise LaunchError("--device cuda: no CUDA device on this machine. Pass --device cpu")
    check_recipe(command.recipe, int(os.environ.get("WORLD_SIZE", "1")))
    if command.out.resolve().is_relative_to(command.data.resolve()):
        raise SettingsError(
            f"--out {command.out} is in --data {command.data}, so a resumed run would also train "
            "on its own views.jpg. Pass an --out outside of --data"
        )
    required = planned_memory(command)
    with ExitStack() as stack:
        process = stack.enter_context(process_group(cuda=command.device != "cpu"))
        images = broadcast_image_list(command, process)
        stop.listen(twice=False)
        # last: if the folder is in use, rank 0 fails within the group, so the others notice
        stack.enter_context(folder_lock(command.out) if process.is_main else nullcontext())
        job = prepare(name, command, process, images)
        wait_for_all("that prepare the data")
        if process.is_main:
            print_line(describe(job))
            for warning in cautions(job):
                print_line(f"note: {warning}")
            if required:
                print_line(f"memory: a step needs at least {required / 1e9:.3g} GB in each process")
        # torch.compile may recompute activations instead of storing them
        if required and process.device.type == "cuda" and not command.compile:
            free, _ = torch.cuda.mem_get_info(process.device)
            if required > free:
                raise SettingsError(
                    f"a step needs at least {required / 1e9:.1f} GB in each process, but only "
                    f"{free / 1e9:.1f} GB are free on the GPU. {USE_LESS_MEMORY}"
                )
        if command.dry_run:
            return 0
        steps = train(job)
        is_finished = steps == job.num_steps
        reason = f"stopped by {stop.signal_name() or 'a signal to another process'}"
        if process.is_main:
            try:
                path = write_backbone(job, steps)
                state = "" if is_finished else f"{reason}  "
                epochs = steps / job.feed.plan.steps_per_epoch
                elapsed = format_duration(time.monotonic() - start_s)
                print(f"{name}  {state}{epochs:g} epochs  {elapsed}  ->  {path}", flush=True)
            except WriteError as error:
                if is_finished:
                    raise
                # not fatal: a resumed run exports it
                print_line(f"step {steps}: backbone not exported ({error})")
        if is_finished:
            return 0
        if process.is_main:
            print_line(
                f"{reason}. Run the same command to resume {job.checkpoint_path} from step "
                f"{steps} of {job.num_steps}"
            )
        return stop.EXIT_RESUMABLE
