"""Options of run_all for a SLURM cluster."""

from dataclasses import dataclass, field
from typing import Annotated

import tyro

from slurm.resources import Queue


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """Options for cells that run as jobs of a SLURM cluster."""

    slurm: bool = False
    """Submit the cells that are not finished as job arrays, and exit. With --plan, only print the
    scripts that sbatch would get."""
    status: bool = False
    """Print the states of all cells that were submitted, or started on a machine."""
    watch: bool = False
    """With --status: show the states until all cells have ended, and write runs/status.html."""
    retry_failed: bool = False
    """Submit the failed and cancelled cells again; each continues from its last checkpoint."""
    cancel: bool = False
    """Cancel all submitted cells that are not finished."""
    parallel: int = 0
    """Cells of one array that run at a time; there is one array for each size of job. 0: as many as
    the cluster allows."""
    hours: float = 0.0
    """Time limit of every cell in h; a cell that needs longer continues in a new job. 0: from the
    protocol, at most 24."""
    cell_gpus: int = 1
    """GPUs of a cell on a frozen network; cells that train the whole network use --gpus. 0: a
    cluster without GPUs."""
    cpus: int = 0
    """Processors of every cell. 0: 8 for each of its GPUs."""
    memory_gb: float = 0.0
    """Memory of every cell in GB. 0: the cluster's default."""
    tables_partition: str = ""
    """Partition of the job that writes the tables, which needs no GPU; the cells' if not given."""
    queue: Annotated[Queue, tyro.conf.arg(name="")] = field(default_factory=Queue)
    """Options of the queue."""

    @property
    def concerns_submitted_cells(self) -> bool:
        """Return whether the options concern cells that were submitted before."""
        return self.status or self.watch or self.retry_failed or self.cancel
