"""Resources of a cell on a cluster: GPUs, processors and hours, from its protocol.

GPU hours are answered by each task's gpu_hours, in its file of transfer/tasks.
"""

import math
from dataclasses import replace

from benchmarks.planning.options import SlurmOptions
from benchmarks.planning.plan import PlannedCell
from slurm.resources import Resources
from transfer.cells.request import Cell

GPUS_OF_A_NODE = 8
CPUS_PER_GPU = 8
"""Loader processes, and one to feed the GPU."""
MARGIN = 3.0
"""Factor on the estimated hours, which assume fast data and an idle node."""
LEAST_HOURS, MOST_HOURS = 1, 24
"""Range of a cell's time limit in h. A cell that needs longer saves at the limit, is queued again
and continues."""


def with_cluster_gpus(cell: Cell, options: SlurmOptions) -> Cell:
    """Return the cell with a fixed number of GPUs, for the nodes and not the submitting machine.

    If not given, it is the largest number on a node that divides the batch into equal passes.
    """
    training = cell.settings.training
    schedule = replace_gpus(cell, 1).task.distributed_training
    if training.gpus or schedule is None:
        return cell
    batch = schedule.batch_size
    most = GPUS_OF_A_NODE if options.cell_gpus else 1
    passes = batch // training.images_per_gpu if training.images_per_gpu else batch
    return replace_gpus(cell, max(n for n in range(1, most + 1) if passes % n == 0))


def replace_gpus(cell: Cell, gpus: int) -> Cell:
    """Return the same cell on another number of GPUs; no number of its protocol changes."""
    training = replace(cell.settings.training, gpus=gpus)
    return replace(cell, settings=replace(cell.settings, training=training))


def resources(row: PlannedCell, options: SlurmOptions) -> Resources:
    """Return the resources of one cell; options that are given take precedence."""
    task = row.cell.task
    processes = task.num_processes(row.cell.settings.training)
    gpus = processes if options.cell_gpus else 0
    if task.distributed_training is None:
        gpus = options.cell_gpus
    hours = math.ceil(MARGIN * row.gpu_hours / max(1, processes))
    return Resources(
        gpus=gpus,
        processes=1,  # a cell starts its own for its GPUs
        cpus=options.cpus or CPUS_PER_GPU * max(1, gpus),
        memory_gb=options.memory_gb,
        hours=options.hours or min(max(hours, LEAST_HOURS), MOST_HOURS),
    )
