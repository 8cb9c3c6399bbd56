"""Jobs of a run: what one process works on, here or on a cluster, and what has to end before.

Cells that read the same pass over images are one job, and run one after another. Cells that use a
classifier wait for the job that trains it. Cells that share features may wait for a job that only
extracts these: those of one backbone and one data set, or those of one task that uses a classifier,
over all backbones, so that their images are decoded once for all.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.planning.plan import PlannedCell, pass_of
from benchmarks.results.records import grouped
from transfer.cells.cell import Cell
from transfer.cells.request import words_of

PREPARE, THEN = "--prepare", "--then"
"""Words of benchmarks.execution.one_cell."""


@dataclass(frozen=True, eq=False)
class Job:
    """Work of one process: cells of one pass over images, or features that cells share."""

    rows: tuple[PlannedCell, ...]
    prepares: bool = False
    """It only extracts features."""

    @property
    def cell(self) -> Cell:
        """First cell, whose GPUs and classifier are those of all."""
        return self.rows[0].cell

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Cells of the rows."""
        return tuple(row.cell for row in self.rows)

    @property
    def backbones(self) -> dict[str, list[PlannedCell]]:
        """Rows of each backbone, by its hash."""
        return grouped((row.cell.backbone.sha256, row) for row in self.rows)

    @property
    def hours(self) -> float:
        """Estimated GPU hours; of an extraction, the longest cell's for each backbone.

        Extraction is most of the work of the cells that wait for it.
        """
        count = max if self.prepares else sum
        return sum(count(row.gpu_hours for row in rows) for rows in self.backbones.values())

    @property
    def needs(self) -> Path | None:
        """Record of the cell that must train the classifier first; None if there is none."""
        return None if self.prepares or self.cell.needed is None else self.cell.needed.path

    def waits_for(self, other: "Job") -> bool:
        """Return whether the other job has to end first."""
        paths = [cell.path for cell in other.cells]
        if other.prepares:
            return not self.prepares and self.cell.path in paths
        return self.needs in paths

    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of benchmarks.execution.one_cell."""
        if not self.prepares:
            return joined(arguments_of(cell) for cell in self.cells)
        keys = ",".join(dict.fromkeys(cell.key for cell in self.cells))
        each = [arguments_of(rows[0].cell) for rows in self.backbones.values()]
        return (PREPARE, keys, *joined(each))


def extractions(rows: Sequence[PlannedCell]) -> list[Job]:
    """Return the jobs that extract features which two or more cells in state "run" share."""
    groups: dict[object, list[PlannedCell]] = {}
    for row in rows:
        task = row.cell.task
        if row.state == "run" and task.needs:
            groups.setdefault(task, []).append(row)
        elif row.state == "run" and not task.trains_backbone:
            groups.setdefault((row.cell.backbone.sha256, task.datasets()), []).append(row)
    return [Job(tuple(group), prepares=True) for group in groups.values() if len(group) > 1]


def evaluations(rows: Sequence[PlannedCell]) -> list[Job]:
    """Return the jobs that evaluate the cells in state "run"; those that use classifiers last.

    Cells of one pass over images are one job, at the place of the first of them.
    """
    left = [row for row in rows if row.state == "run"]
    passes = grouped((pass_of(row.cell) or id(row), row) for row in left)
    jobs = [Job(tuple(group)) for group in passes.values()]
    return sorted(jobs, key=lambda job: job.cell.needed is not None)


def arguments_of(cell: Cell) -> tuple[str, ...]:
    """Return the arguments for a cell, with absolute paths."""
    request = cell.request.absolute()
    words = words_of(request)
    # the default is $DATASETS, which may be another where the job runs
    return tuple(words if "--data" in words else [*words, "--data", str(request.settings.data)])


def joined(arguments: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the arguments for several cells, given those of each."""
    first, *others = arguments
    return (*first, *(word for more in others for word in (THEN, *more)))


def process_command(words: Sequence[str]) -> tuple[str, ...]:
    """Return the command that starts a process with these arguments."""
    return (sys.executable, "-m", "benchmarks.execution.one_cell", *words)
