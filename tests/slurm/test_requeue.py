"""Commands as jobs, where there is no Slurm: through submitit's local executor."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import submitit
from submitit.slurm.slurm import SlurmJobEnvironment

from slurm.requeue import MOST_KILLS, Command, after_kill, note_kill

COUNTING = (sys.executable, str(Path(__file__).with_name("counting.py")))


def submitted(folder: Path, *words: str) -> Any:
    executor = submitit.AutoExecutor(folder=folder / "jobs", cluster="local")
    executor.update_parameters(timeout_min=30)
    return executor.submit(Command(words))


def patient(path: Path) -> None:
    until = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
def test_a_command_that_fails_says_with_which_status(tmp_path: Path) -> None:
    error = submitted(tmp_path, "bash", "-c", "exit 3").exception()
    assert "CommandError: exit status 3" in str(error)


@pytest.mark.slow
def test_a_preempted_command_goes_on_where_it_was(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = submitted(tmp_path, *COUNTING, str(tmp_path / "count"), "30", str(gate))
    patient(tmp_path / "count")
    subprocess.run(["pkill", "-USR2", "-P", job.job_id], check=True)
    gate.touch()
    assert job.result() is None
    starts = [int(line) for line in (tmp_path / "count.starts").read_text().split()]
    assert len(starts) == 2
    assert 0 < starts[1] < 30
    assert (tmp_path / "count").read_text() == "30"


@pytest.mark.slow
def test_a_killed_command_is_started_again_but_not_for_ever(tmp_path: Path) -> None:
    job = submitted(tmp_path, "bash", "-c", f"echo x >> {tmp_path}/starts; kill -9 $$")
    assert f"killed by SIGKILL {MOST_KILLS + 1} times" in str(job.exception())
    assert len((tmp_path / "starts").read_text().split()) == MOST_KILLS + 1


def test_kills_are_counted_by_job(tmp_path: Path) -> None:
    assert [note_kill(tmp_path, "7_1") for _ in range(3)] == [1, 2, 3]
    assert note_kill(tmp_path, "7_2") == 1


def test_a_command_ends_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "from slurm.requeue import _Requests\n"
        f"_Requests().run({(*COUNTING, str(tmp_path / 'count'), '1000')!r}, dict(os.environ))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    patient(tmp_path / "count")
    parent.kill()
    parent.wait()
    time.sleep(0.5)
    before = (tmp_path / "count").read_text()
    time.sleep(0.5)
    assert (tmp_path / "count").read_text() == before


@pytest.mark.parametrize(
    ("status", "state", "leaves", "again"),
    [
        (137, "RUNNING", False, True),
        (137, "COMPLETING", False, False),  # cancelled
        (137, "RUNNING", True, False),  # it has told why it failed
        (1, "RUNNING", False, False),
        (255, "RUNNING", False, False),
    ],
)
def test_only_a_job_that_was_killed_is_put_back(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    state: str,
    leaves: bool,
    again: bool,
) -> None:
    for name, text in {"squeue": f"echo {state}", "scontrol": "exit 0"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    if leaves:
        (tmp_path / "7_1_0_result.pkl").touch()
    assert after_kill(tmp_path, status) == again


def test_what_slurm_is_asked_to_send_is_heard() -> None:
    assert SlurmJobEnvironment._usr_sig() == signal.SIGUSR2
