"""Size and length of a job, and the queue that it waits in, as options of sbatch."""

import math
from dataclasses import asdict, dataclass
from typing import Any

GIVE_UP_DELAY_S = 120
"""Seconds before the time limit at which a job gets the signal to save and exit; a third of the
limit if that is less."""


LIMITS = (
    ("nodes", 1, 100_000),
    ("gpus", 0, 1024),
    ("processes", 0, 4096),
    ("cpus", 0, 4096),
    ("memory_gb", 0, 1e6),
    ("hours", 1e-3, 1e5),
)
"""Range of each size in Resources: name, least and most."""


class RequestError(ValueError):
    """Options that contradict each other or are out of range."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Size and length of a job."""

    nodes: int = 1
    """Machines of the job."""
    gpus: int = 0
    """GPUs on each node."""
    processes: int = 0
    """Processes on each node. 0: one for each GPU, or one without GPUs."""
    cpus: int = 0
    """CPUs for each process. 0: the cluster's default."""
    memory_gb: float = 0.0
    """Memory on each node. 0: the cluster's default."""
    hours: float = 24.0
    """Time limit; a job that reaches it saves, waits in the queue again, and resumes."""

    def __post_init__(self) -> None:
        sizes = asdict(self)
        for name, least, most in LIMITS:
            if not least <= sizes[name] <= most:
                found = f"--{name.replace('_', '-')} {sizes[name]}".removesuffix(".0")
                raise RequestError(f"{found}: expected at least {least:g} and at most {most:.10g}")

    @property
    def minutes(self) -> int:
        """Time limit in minutes, Slurm's unit."""
        return math.ceil(round(self.hours * 60, 6))

    @property
    def processes_per_node(self) -> int:
        """Processes on each node: the given number, or one for each GPU, or one."""
        return self.processes or max(1, self.gpus)

    def parameters(self) -> dict[str, Any]:
        """Return the options that are set, under the names of submitit's SlurmExecutor."""
        parameters: dict[str, Any] = {
            "time": self.minutes,
            "nodes": self.nodes,
            "ntasks_per_node": self.processes_per_node,
            "signal_delay_s": min(GIVE_UP_DELAY_S, 20 * self.minutes),
        }
        if self.gpus:
            parameters["gpus_per_node"] = self.gpus
        if self.cpus:
            parameters["cpus_per_task"] = self.cpus
        if self.memory_gb:
            parameters["mem"] = f"{math.ceil(self.memory_gb * 1024)}MB"
        return parameters


@dataclass(frozen=True, kw_only=True)
class Queue:
    """The queue that jobs wait in, and the commands that prepare their nodes."""

    partition: str = ""
    """Partition of the cluster; empty: its default."""
    qos: str = ""
    """Quality of service."""
    account: str = ""
    """Account that the hours are charged to."""
    constraint: str = ""
    """Features that the nodes must have."""
    exclude_nodes: str = ""
    """Nodes that must not be taken."""
    gpu_type: str = ""
    """Type of GPU by the cluster's name for it, such as a100; empty: any."""
    setup: tuple[str, ...] = ()
    """Lines of bash before each job, such as "module load cuda" "conda activate ssl"."""
    sbatch: tuple[str, ...] = ()
    """Other options of sbatch, without dashes, such as reservation=course licenses=lab:1."""

    def parameters(self) -> dict[str, Any]:
        """Return the options that are set, under the names of submitit's SlurmExecutor."""
        parameters = {
            "partition": self.partition,
            "qos": self.qos,
            "account": self.account,
            "constraint": self.constraint,
            "exclude": self.exclude_nodes,
        }
        return {name: value for name, value in parameters.items() if value}

    def options(self) -> dict[str, str | bool]:
        """Return the other options of sbatch by name; True where an option has no value."""
        options: dict[str, str | bool] = {}
        for option in self.sbatch:
            name, _, value = option.lstrip("-").partition("=")
            options[name] = value or True
        return options
