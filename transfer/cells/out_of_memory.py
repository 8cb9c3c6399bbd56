"""Advice on a cell that has run out of memory: the options that need less, with numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from transfer.cells.request import Cell


@contextmanager
def explain_memory_errors(cell: Cell) -> Iterator[None]:
    """Shorten an error of memory that ran out, on a GPU or not, and add the advice."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if _is_out_of_memory(error):
            reason = str(error).partition("\n")[0] or "out of memory"
            error.args = (f"{reason}; {memory_advice(cell)}",)
        raise


def _is_out_of_memory(error: Exception) -> bool:
    import torch

    # torch has no class of its own for the memory of the processor
    on_cpu = type(error) is RuntimeError and "DefaultCPUAllocator" in str(error)
    return on_cpu or isinstance(error, MemoryError | torch.OutOfMemoryError)


def memory_advice(cell: Cell) -> str:
    """Return the options of a cell's task that lower the memory, each with its present value."""
    task, options = cell.task, cell.settings.training
    lines: list[str] = []

    def offer(option: str, value: Any, now: Any) -> None:
        """Name an option if it changes the task."""
        settings = replace(cell.settings, training=replace(options, **{option: value}))
        if replace(cell, settings=settings).task != task:
            lines.append(f"--{option.replace('_', '-')} {value} (now {now})")

    schedule = task.distributed_training
    if schedule is not None:
        passes = schedule.accumulated * task.num_processes(options)
        images = schedule.batch_size // passes
        if images > 1:
            fewer = max(n for n in range(1, images) if images % n == 0)
            offer("images_per_gpu", fewer, images)
            # with a stated number of images a smaller batch has fewer passes, not smaller ones
            if not options.images_per_gpu:
                offer("batch_size", fewer * passes, schedule.batch_size)
    if (options.precision or "float32") == "float32":
        offer("precision", "bfloat16", "float32")
    if options.rates_at_once != 1:
        offer("rates_at_once", 1, options.rates_at_once or "as many as fit")
    if not task.trains_backbone and cell.computing.precision == "float32":
        lines.append("--features-in bfloat16 (now float32)")
    if not lines:
        return "no option of this task needs less; end what else uses this memory"
    return f"these options need less: {', '.join(lines)}"
