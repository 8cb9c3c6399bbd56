"""One real cluster for all tests that need it.

It requires Slurm's programs.
"""

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm.state import JobState, job_states
from tests.slurm.pretend_cluster import PATH, PretendCluster, missing_programs, pretend_cluster

PATIENCE_S = 900
"""Limit for waits that take seconds on an idle machine."""


@pytest.fixture(scope="session")
def running_cluster() -> Iterator[PretendCluster]:
    """Two nodes, started once per session."""
    missing = missing_programs()
    if missing:
        pytest.skip(f"no Slurm on this machine, {', '.join(missing)}: .ci/run installs it")
    try:
        socket.getaddrinfo("localhost", None, flags=socket.AI_ADDRCONFIG)
    except socket.gaierror:
        pytest.skip("this machine has no address but the loopback's: Slurm cannot start")
    root = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # names of sockets must be short
    try:
        with pretend_cluster(root) as cluster:
            yield cluster
    finally:
        shutil.rmtree(root)


@pytest.fixture
def pretend(
    running_cluster: PretendCluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PretendCluster]:
    """A cluster without jobs, which Slurm's programs in this process use."""
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_", "SRUN_"))]:
        monkeypatch.delenv(name)  # where pytest itself runs in a job
    monkeypatch.setenv("SLURM_CONF", str(running_cluster.conf))
    monkeypatch.setenv("PATH", PATH)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield running_cluster
    running_cluster.tell("scancel", "--me")


@pytest.fixture
def folder(pretend: PretendCluster) -> Iterator[Path]:
    """A folder that jobs may still write to after the test."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


def wait_for_all(jobs: list[str]) -> dict[str, JobState]:
    until = time.monotonic() + PATIENCE_S
    while True:
        states = job_states(jobs)
        if len(states) == len(jobs) and all(s.stage == "ended" for s in states.values()):
            return states
        assert time.monotonic() < until, states
        time.sleep(0.5)


def wait_until(true: Callable[[], object]) -> None:
    """Wait for a condition; AssertionError if it stays false."""
    until = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < until
        time.sleep(0.1)
