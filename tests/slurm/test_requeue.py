"""Commands as jobs, where there is no Slurm."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm.requeue import (
    MAX_KILLS,
    CommandError,
    _Requests,
    _restart_or_fail,
    environment,
    killing_signal,
    restart_after_kill,
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


@pytest.mark.parametrize(
    ("status", "nodes", "starts"), [(1, 1, 0), (1, 2, MAX_KILLS), (137, 1, MAX_KILLS)]
)
def test_what_may_pass_is_tried_again_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, nodes: int, starts: int
) -> None:
    """A failure on one node is final; on several it may be the death of another node."""
    job = SimpleNamespace(job_id="7", global_rank=0, num_nodes=nodes, num_tasks=nodes)
    job.paths = SimpleNamespace(folder=tmp_path)
    fake_programs(
        tmp_path, monkeypatch, squeue="echo RUNNING", scontrol=f"echo $2 >> {tmp_path}/put"
    )
    for start in range(starts):
        monkeypatch.setenv("SLURM_RESTART_COUNT", str(start))
        with pytest.raises(SystemExit):
            _restart_or_fail(job, status, late=False)
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(starts))
    with pytest.raises(CommandError, match="exit status 1" if status == 1 else "by SIGKILL in 4"):
        _restart_or_fail(job, status, late=False)
    put = tmp_path / "put"
    assert (put.read_text().split() if put.exists() else []) == ["7"] * starts


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
    before = (tmp_path / "count").read_text()
    time.sleep(0.5)
    assert (tmp_path / "count").read_text() == before


def test_only_a_job_that_was_killed_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    result = tmp_path / "7_1_0_result.pkl"
    for status, state, leaves, nodes, again in (
        (137, "RUNNING", False, 1, True),
        (137, "COMPLETING", False, 1, False),  # cancelled
        (137, "RUNNING", True, 1, False),  # it has told why it failed
        (1, "RUNNING", False, 1, False),
        (255, "RUNNING", False, 1, False),
        (1, "RUNNING", False, 2, True),  # srun has found a dead node
        (75, "RUNNING", False, 2, False),  # its process puts it back
    ):
        fake_programs(tmp_path, monkeypatch, squeue=f"echo {state}", scontrol="exit 0")
        monkeypatch.setenv("SLURM_JOB_NUM_NODES", str(nodes))
        result.unlink(missing_ok=True)
        if leaves:
            result.touch()
        assert restart_after_kill(tmp_path, status) == again, (status, state, leaves, nodes)


def test_processes_meet_on_the_first_node_at_a_port_of_this_start() -> None:
    # the third process of four, the second on its node
    job = SimpleNamespace(job_id="12_3", hostnames=("node7", "node9"), num_tasks=4, num_nodes=2)
    job.global_rank, job.local_rank = 2, 1
    found = environment(job, {"HOME": "/root"})
    port = found.pop("MASTER_PORT")
    assert 20_000 <= int(port) <= 32_000
    assert found == {
        "HOME": "/root",
        "MASTER_ADDR": "node7",
        "RANK": "2",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
    }
    assert environment(job, {"SLURM_RESTART_COUNT": "1"})["MASTER_PORT"] != port
    # GPUs that are seen are indexed and left alone
    seen = [environment(job, {"CUDA_VISIBLE_DEVICES": gpus}) for gpus in ("2,3", "3")]
    told = [(one["CUDA_VISIBLE_DEVICES"], one["LOCAL_RANK"]) for one in seen]
    assert told == [("2,3", "1"), ("3", "0")]
    job.global_rank = 0
    assert environment(job, {})["MASTER_PORT"] == port
