"""What a job asks of the cluster, and the queue that it waits in, in sbatch's words."""

import math
from dataclasses import dataclass
from typing import Any

GIVE_UP_DELAY_S = 120
"""Before the time limit a job is asked to save and leave; a third of the limit if that is less."""


class RequestError(ValueError):
    """Options that make no sense."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Size and length of a job."""

    nodes: int = 1
    gpus: int = 0
    """On each node."""
    processes: int = 0
    """Started on each node. 0: one for each GPU, or one without GPUs."""
    cpus: int = 0
    """For each process. 0: the cluster's default."""
    memory_gb: float = 0.0
    """On each node. 0: the cluster's default."""
    hours: float = 24.0
    """Time limit; a job that reaches it saves, waits again, and goes on."""

    def __post_init__(self) -> None:
        least = min(self.nodes - 1, self.gpus, self.processes, self.cpus, self.memory_gb)
        if least < 0 or self.minutes < 1:
            raise RequestError(f"{self}: nodes and hours must be positive, nothing negative")

    @property
    def minutes(self) -> int:
        """The time limit, in the unit that Slurm counts in."""
        return math.ceil(round(self.hours * 60, 6))

    @property
    def processes_per_node(self) -> int:
        """As asked, or one for each GPU, or one."""
        return self.processes or max(1, self.gpus)

    def parameters(self) -> dict[str, Any]:
        """Under the names of submitit's SlurmExecutor."""
        asked: dict[str, Any] = {
            "time": self.minutes,
            "nodes": self.nodes,
            "ntasks_per_node": self.processes_per_node,
            "signal_delay_s": min(GIVE_UP_DELAY_S, 20 * self.minutes),
        }
        if self.gpus:
            asked["gpus_per_node"] = self.gpus
        if self.cpus:
            asked["cpus_per_task"] = self.cpus
        if self.memory_gb:
            asked["mem"] = f"{math.ceil(self.memory_gb * 1024)}MB"
        return asked


@dataclass(frozen=True, kw_only=True)
class Queue:
    """Where jobs wait, and what is made ready on their nodes."""

    partition: str = ""
    """Of the cluster; its default if not given."""
    qos: str = ""
    """Quality of service."""
    account: str = ""
    """Whom the hours are charged to."""
    constraint: str = ""
    """Features that the nodes must have."""
    exclude: str = ""
    """Nodes that must not be taken."""
    gpu_type: str = ""
    """As the cluster calls it, such as a100; any if not given."""
    setup: tuple[str, ...] = ()
    """Lines of bash before each job, such as "module load cuda" "conda activate ssl"."""
    sbatch: tuple[str, ...] = ()
    """Other options of sbatch, without dashes, such as reservation=course licenses=lab:1."""

    def parameters(self) -> dict[str, Any]:
        """Under the names of submitit's SlurmExecutor."""
        names = ("partition", "qos", "account", "constraint", "exclude")
        return {name: value for name in names if (value := getattr(self, name))}

    def options(self) -> dict[str, str | bool]:
        """The other options of sbatch by name; True where there is no value."""
        found: dict[str, str | bool] = {}
        for option in self.sbatch:
            name, _, value = option.lstrip("-").partition("=")
            found[name] = value or True
        return found
