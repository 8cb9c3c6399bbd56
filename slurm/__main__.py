"""python -m slurm --nodes 2 --gpus 8 -- COMMAND: one command as a job, on one node or several.

A process is started for each GPU, and finds the others as under torchrun. A command that exits with
75 when it is asked to stop is started again where it was; what is killed is started again as well.
"""

import shlex
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from slurm.cluster import ClusterError, cluster
from slurm.requeue import Command
from slurm.resources import Queue, RequestError, Resources
from slurm.state import log_path
from slurm.submit import Array, script, submit


@dataclass(frozen=True, kw_only=True)
class Request:
    """Submit one command as a job; give it after two dashes."""

    resources: Annotated[Resources, tyro.conf.arg(name="")] = field(default_factory=Resources)
    """What it asks of the cluster."""
    queue: Annotated[Queue, tyro.conf.arg(name="")] = field(default_factory=Queue)
    """Where it waits."""
    name: str = "job"
    """In the queue."""
    folder: Path = Path("runs/slurm/jobs")
    """Of logs, on a file system that all nodes share."""
    dry_run: bool = False
    """Only print what sbatch would be given."""


def main(words: list[str]) -> int:
    """Exit status: 0 submitted, 2 the request is wrong or the cluster refuses it."""
    split = words.index("--") if "--" in words else len(words)
    command = tuple(words[split + 1 :])
    try:
        request = tyro.cli(Request, args=words[:split], prog="python -m slurm", description=__doc__)
        if not command:
            raise RequestError("no command: python -m slurm OPTIONS -- COMMAND")
        return _submitted(request, command)
    except (ClusterError, RequestError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _submitted(request: Request, command: tuple[str, ...]) -> int:
    folder = (request.folder / time.strftime("%Y%m%d-%H%M%S")).absolute()
    array = Array(name=request.name, work=(Command(command),), resources=request.resources)
    if request.dry_run:
        print(f"{script(array, request.queue, folder)}\n# runs: {shlex.join(command)}")
        return 0
    where = cluster(request.queue.partition)
    for warning in where.warnings():
        print(f"note: {warning}", file=sys.stderr)
    ((job,),) = submit([array], request.queue, folder, where)
    print(f"job {job}  ->  {log_path(folder, job)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
