"""Commands as jobs, without Slurm."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm.requeue import (
    MAX_KILLS,
    MAX_STARTS,
    _Requests,
    environment,
    first_status,
    killing_signal,
    start_again,
    this_job,
)
from tests.slurm.conftest import wait_until
from tests.slurm.fake_programs import fake_programs

COUNTING = (sys.executable, str(Path(__file__).with_name("counting.py")))


def test_a_command_that_nobody_asks_leaves_before_the_limit() -> None:
    for ignored, late in (("", False), ("trap '' TERM; ", True)):
        requests = _Requests()
        line = f"{ignored}for i in {{1..100}}; do sleep 0.1; done"
        status = requests.run(("bash", "-c", line), dict(os.environ), limit_s=1.5)
        assert (requests.signal_name, requests.late) == ("the time limit", late)
        assert killing_signal(status) == ("SIGKILL" if late else "SIGTERM")


@pytest.fixture
def put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A running job on one node.

    The returned file has a line for each time that it is requeued.
    """
    put = f"echo $2 >> {tmp_path}/put"
    fake_programs(tmp_path, monkeypatch, squeue="echo RUNNING", scontrol=put)
    (tmp_path / "put").touch()
    return tmp_path / "put"


@pytest.mark.parametrize(
    ("status", "nodes", "starts", "reason"),
    [
        (1, 1, 0, ""),
        (255, 1, 0, ""),
        (1, 2, MAX_KILLS, "exit status 1 in 4 starts"),
        (137, 1, MAX_KILLS, "killed by SIGKILL in 4 starts; perhaps it needs more memory"),
    ],
)
def test_what_may_pass_is_tried_again_but_not_for_ever(
    put_back: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    nodes: int,
    starts: int,
    reason: str,
) -> None:
    """A failure on one node is final.

    On several nodes it may be the failure of another node.
    """
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", str(nodes))
    for start in range(starts):
        monkeypatch.setenv("SLURM_RESTART_COUNT", str(start))
        assert start_again(put_back.parent, "7", status) == ""
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(starts))
    assert start_again(put_back.parent, "7", status) == reason
    assert put_back.read_text().split() == ["7"] * starts


def test_command_that_saves_between_kills_is_always_started_again(
    put_back: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start, status in enumerate([137, 137, 137, 75] * 3):
        monkeypatch.setenv("SLURM_RESTART_COUNT", str(start))
        assert start_again(put_back.parent, "7", status) == ""
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(MAX_STARTS - 1))
    assert "not finished after 100 starts" in start_again(put_back.parent, "7", 75)


def test_first_process_that_ends_badly_decides(put_back: Path) -> None:
    """srun then stops the other processes, which save and exit with 75."""
    first_status(put_back.parent, "7", 1)
    assert first_status(put_back.parent, "7", 75) == 1
    assert start_again(put_back.parent, "7", 137) == ""
    assert put_back.read_text() == ""


@pytest.mark.parametrize("arg", ["COMPLETING", "CANCELLED", ""])
def test_job_that_was_ended_from_outside_stays_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arg: str
) -> None:
    fake_programs(tmp_path, monkeypatch, squeue=f"echo {arg}", scontrol="exit 1")
    assert "cancelled or ended by Slurm" in start_again(tmp_path, "7", 75)


def test_id_of_an_element_is_that_of_submitit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    assert this_job() == "9"
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    assert this_job() == "7_1"


def test_a_command_ends_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "from slurm.requeue import _Requests\n"
        f"words = {(*COUNTING, str(tmp_path / 'count'), '1000')!r}\n"
        "_Requests().run(words, dict(os.environ), 600.0)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    wait_until((tmp_path / "count").exists)
    parent.kill()
    parent.wait()
    time.sleep(0.5)
    previous = (tmp_path / "count").read_text()
    time.sleep(0.5)
    assert (tmp_path / "count").read_text() == previous


def test_processes_meet_on_the_first_node_at_a_port_of_this_start() -> None:
    # the third process of four, the second on its node
    job = SimpleNamespace(job_id="12_3", hostnames=("node7", "node9"), num_tasks=4, num_nodes=2)
    job.global_rank, job.local_rank = 2, 1
    result = environment(job, {"HOME": "/root"})
    port = result.pop("MASTER_PORT")
    assert 20_000 <= int(port) <= 32_000
    assert result == {
        "HOME": "/root",
        "MASTER_ADDR": "node7",
        "RANK": "2",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
    }
    assert environment(job, {"SLURM_RESTART_COUNT": "1"})["MASTER_PORT"] != port
    # GPUs that are seen are indexed and left alone
    observed = [environment(job, {"CUDA_VISIBLE_DEVICES": gpus}) for gpus in ("2,3", "3")]
    output = [(item["CUDA_VISIBLE_DEVICES"], item["LOCAL_RANK"]) for item in observed]
    assert output == [("2,3", "1"), ("3", "0")]
    job.global_rank = 0
    assert environment(job, {})["MASTER_PORT"] == port
