"""What a user may ask of a cluster on the command line of run_all."""

from dataclasses import dataclass, field
from typing import Annotated

import tyro

from slurm.resources import Queue


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """Cells as jobs of a SLURM cluster."""

    slurm: bool = False
    """Submit the cells that are not finished as job arrays, and leave; with --plan, only print what
    sbatch would be given."""
    status: bool = False
    """Tell where all submitted cells are."""
    retry_failed: bool = False
    """Submit the cells that failed once more; each goes on where it was."""
    cancel: bool = False
    """Take all submitted cells that are not finished from the cluster."""
    parallel: int = 0
    """Cells of one array that run at a time, there being one for each size of job. 0: as many as
    the cluster allows."""
    hours: float = 0.0
    """Time limit of every cell, which goes on after it. 0: from the protocol, at most 24."""
    cell_gpus: int = 1
    """GPUs of a cell that trains no whole network, whose number is --gpus. 0: a cluster without
    GPUs."""
    cpus: int = 0
    """Of every cell. 0: 8 for each of its GPUs."""
    memory_gb: float = 0.0
    """Of every cell. 0: the cluster's default."""
    tables_partition: str = ""
    """Of the job that makes the tables, which needs no GPU. As the cells' if not given."""
    queue: Annotated[Queue, tyro.conf.arg(name="")] = field(default_factory=Queue)
    """Where jobs wait."""

    @property
    def follows(self) -> bool:
        """Whether something is asked of what was submitted before."""
        return self.status or self.retry_failed or self.cancel
