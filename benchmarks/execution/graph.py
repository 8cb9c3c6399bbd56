"""Jobs of a run: cells that one process evaluates, and their dependencies.

Cells that share work form one job. All backbones on tasks that use only features of the same
datasets share a job, so that each image is decoded once, and so do probes on the same random crops.
They are split into several jobs if their networks take longer than decoding and jobs run in
parallel. The other tasks of one backbone on the same datasets also share a job and its features.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.planning.plan import (
    PlannedCell,
    decoding_hours,
    extraction_of,
    pass_of,
    with_jobs_and_hours,
)
from benchmarks.words import grouped
from transfer.cells.cell import Cell
from transfer.cells.request import Request


@dataclass(frozen=True, eq=False)
class Job:
    """Cells that one process evaluates one after another."""

    cells: tuple[Cell, ...]
    hours: float
    """Estimated GPU hours."""
    dependencies: tuple["Job", ...] = ()
    """Jobs that train the classifiers of the cells, and must end first."""

    @property
    def cell(self) -> Cell:
        """First cell; all cells use the same number of GPUs."""
        return self.cells[0]

    @property
    def requests(self) -> list[Request]:
        """Requests of the cells."""
        return [cell.planned_request for cell in self.cells]


def job_graph(rows: Sequence[PlannedCell]) -> list[Job]:
    """Return the jobs to run, each after its dependencies."""
    groups = grouped((_job_key(row), row) for row in rows if row.state == "run")
    jobs: list[Job] = []
    for group in sorted(
        groups.values(), key=lambda group: bool(group[0].cell.task.classifier_task)
    ):
        cells = tuple(row.cell for row in group)
        classifier_paths = {
            cell.classifier_cell.path for cell in cells if cell.classifier_cell is not None
        }
        dependencies = tuple(
            job for job in jobs if classifier_paths.intersection(cell.path for cell in job.cells)
        )
        jobs.append(Job(cells, sum(row.gpu_hours for row in group), dependencies))
    return jobs


def with_hours_of_this_machine(rows: Sequence[PlannedCell], workers: int) -> list[PlannedCell]:
    """Return the rows with the hours of jobs that share this machine.

    Parallel jobs share its cores and memory. workers: their maximum number. If there are fewer
    jobs, each has a larger share.
    """
    cores, planned = len(os.sched_getaffinity(0)), list(rows)
    while True:
        rows = [
            replace(row, core_hours=decoding_hours(row.cell, row.measured, workers))
            if row.core_hours
            else row
            for row in planned
        ]
        rows = with_jobs_and_hours(rows, max(1, cores // workers), workers)
        num_jobs = len(job_graph(rows))
        if not 0 < num_jobs < workers:
            return rows
        workers = num_jobs


def _job_key(row: PlannedCell) -> object:
    """Return a key that the cells of one job have in common."""
    cell = row.cell
    if cell.task.trains_backbone or cell.task.distributed_training is not None:
        return cell.path
    if shared := extraction_of(cell) or pass_of(cell):
        return shared, row.job_index
    return cell.backbone.sha256, cell.task.datasets()
