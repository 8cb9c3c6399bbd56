"""python -m slurm --nodes 2 --gpus 8 -- COMMAND: one command as a job, on one node or several.

One process per GPU is started, and the processes find each other as under torchrun. A command that
exits with status 75 after a request to stop is started again, and so is one that was killed.
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
    """Size and length of the job."""
    queue: Annotated[Queue, tyro.conf.arg(name="")] = field(default_factory=Queue)
    """Queue that the job waits in."""
    name: str = "job"
    """Name of the job in the queue."""
    folder: Path = Path("runs/slurm/jobs")
    """Folder of logs, on a file system that all nodes share."""
    dry_run: bool = False
    """Only print the script that sbatch would get."""


def main(words: list[str]) -> int:
    """Submit a command; return 0, or 2 if the request is wrong or the cluster refuses it."""
    split = words.index("--") if "--" in words else len(words)
    command = tuple(words[split + 1 :])
    try:
        request = tyro.cli(Request, args=words[:split], prog="python -m slurm", description=__doc__)
        if not command:
            raise RequestError(
                f"no command in {shlex.join(words)!r}: python -m slurm OPTIONS -- COMMAND"
            )
        folder = (request.folder / time.strftime("%Y%m%d-%H%M%S")).absolute()
        array = Array(name=request.name, work=(Command(command),), resources=request.resources)
        if request.dry_run:
            print(f"{script(array, request.queue, folder)}\n# runs: {shlex.join(command)}")
            return 0
        site = cluster()
        for warning in site.warnings():
            print(f"note: {warning}", file=sys.stderr)
        ((job,),) = submit([array], request.queue, folder, site)
    except (ClusterError, RequestError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"job {job}  ->  {log_path(folder, job)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
