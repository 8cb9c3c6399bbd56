"""Free memory of this machine, container or job, and what decoded images may take of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

DEFAULT_SHARE = 0.25
"""Share of the free memory that decoded images may take by default."""
OPTION = "--image-memory-gb"
SHARERS = "SSL_BENCHMARK_SHARERS"
"""Environment variable: number of processes side by side that share the free memory."""
JOB_MEMORY = "SLURM_MEM_PER_NODE"
"""Environment variable: memory of a Slurm job on this node in MB; 0 is all of it."""
PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")

_limit_gb: ContextVar[float | None] = ContextVar("limit_gb", default=None)


@contextmanager
def image_memory(limit_gb: float | None) -> Iterator[None]:
    """Let decoded images of this process take this much memory within the block.

    None: DEFAULT_SHARE of what is free, divided by the processes that run side by side.
    """
    token = _limit_gb.set(limit_gb)
    try:
        yield
    finally:
        _limit_gb.reset(token)


def image_memory_bytes() -> int:
    """Return the bytes that decoded images of this process may take."""
    limit_gb = _limit_gb.get()
    if limit_gb is not None:
        return int(limit_gb * 1e9)
    return int(free_memory() * DEFAULT_SHARE / max(1, _number(SHARERS)))


def _number(variable: str) -> int:
    """Return the whole number in an environment variable; 0 if there is none."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else 0


def free_memory(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Return the bytes that this process may still take, here and in its container or job."""
    numbers = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    available = {words[0]: 1024 * int(words[1]) for words in numbers}["MemAvailable:"]
    # a job may be killed at its limit although it has no group of its own
    job = [2**20 * megabytes] if (megabytes := _number(JOB_MEMORY)) else []
    return max(0, min([available, *job, *_free_in_groups(proc, cgroups)]))


def _free_in_groups(proc: Path, cgroups: Path) -> Iterator[int]:
    """Yield the free bytes of each group of processes with a limit that this process is in."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:  # a system without groups
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers == "":  # version 2
            yield from _free_above(cgroups, name, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            files = "memory.limit_in_bytes", "memory.usage_in_bytes"
            yield from _free_above(cgroups / "memory", name, *files)


def _free_above(root: Path, name: str, limit: str, usage: str) -> Iterator[int]:
    """Yield the free bytes of a group and of those above it, as far as they are visible."""
    group = root / name.strip("/")
    # in a container the root is the container's own group, whatever it is called outside
    for folder in (group, *group.parents):
        if not folder.is_relative_to(root):
            return
        try:
            most = (folder / limit).read_text().strip()
            used = int((folder / usage).read_text())
            yield int(most) - used + _file_cache(folder)
        except (OSError, ValueError):  # no such group here, or "max"
            continue


def _file_cache(group: Path) -> int:
    """Return the bytes of files in the group's memory, which it gives up when it needs them."""
    for line in (group / "memory.stat").read_text().splitlines():
        name, _, number = line.partition(" ")
        # files in recent use do not count: without them the work in progress would slow down
        if name in ("inactive_file", "total_inactive_file"):
            return int(number)
    return 0
