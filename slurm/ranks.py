"""The variables by which the processes of a job find each other, as set by torchrun.

Slurm sets none of them. submitit's helper would also set CUDA_VISIBLE_DEVICES to the local rank,
which may be another job's GPU on a node that does not confine jobs to their devices.
"""

import random
from collections.abc import Mapping
from typing import Any

NAMES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
PORTS = (20_000, 32_000)
"""Range of ports, below those that Linux uses for outgoing connections."""


def environment(job: Any, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of this process of the job, without those of another launcher.

    job: submitit's JobEnvironment of a running job.
    LOCAL_RANK is the place of the process's GPU among those that it sees: 0 where the cluster
    shows each process only its own.
    """
    own = {name: value for name, value in inherited.items() if name not in NAMES}
    if job.num_tasks == 1:
        return own
    # another start, another port: the last one may be in use
    start = inherited.get("SLURM_RESTART_COUNT", "0")
    visible = [name for name in inherited.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return own | {
        "MASTER_ADDR": job.hostnames[0],
        "MASTER_PORT": str(random.Random(f"{job.job_id} {start}").randint(*PORTS)),
        "RANK": str(job.global_rank),
        "WORLD_SIZE": str(job.num_tasks),
        "LOCAL_RANK": "0" if len(visible) == 1 else str(job.local_rank),
        "LOCAL_WORLD_SIZE": str(job.num_tasks // job.num_nodes),
    }
