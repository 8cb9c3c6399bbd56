"""States of jobs from Slurm's output and from the jobs' files."""

from pathlib import Path

import pytest

from slurm.state import job_states, last_log_line
from tests.slurm.fake_programs import fake_programs


def test_accounts_tell_of_jobs_that_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = "echo '7_0|RUNNING|None|n1\n8|COMPLETED|None|n2'"
    accounts = "echo '5_0|TIMEOUT|None|n1\n5_1|CANCELLED by 0|None|n1'"
    fake_programs(tmp_path, monkeypatch, squeue=queue, sacct=accounts)
    states = job_states(["5_0", "5_1"])
    args = {job: state.slurm_state for job, state in states.items()}
    assert args == {"5_0": "TIMEOUT", "5_1": "CANCELLED"}
    fake_programs(tmp_path, monkeypatch, sacct="exit 1")  # without accounts they are unknown
    assert list(job_states(["5_0", "8"])) == ["8"]


def test_a_cancelled_rest_of_an_array_is_told_for_each_element(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = "6_0|COMPLETED|None|n1\n6_[1-2,4%2]|CANCELLED|None|\n17|CANCELLED|Dependency|"
    fake_programs(tmp_path, monkeypatch, squeue=f"echo '{queue}'", sacct="")
    jobs = ["6_0", "6_1", "6_2", "6_3", "6_4", "17_0", "17_5"]
    args = {job: state.slurm_state for job, state in job_states(jobs).items()}
    assert args == {"6_0": "COMPLETED"} | dict.fromkeys(
        ("6_1", "6_2", "6_4", "17_0", "17_5"), "CANCELLED"
    )
    # a shortened list is queried again in full, and its dots are not a number
    line = '[ "$SLURM_BITSTR_LEN" = 0 ] && echo "6_[1,3,...%2]|PENDING|None|"'
    fake_programs(tmp_path, monkeypatch, squeue=line, sacct="")
    assert list(job_states(["6_1", "6_2", "6_3"])) == ["6_1", "6_3"]


def test_last_words_are_the_commands_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_log_line(log) == ""
    log.write_text(
        "12:00:01  train  1/9 steps\r12:00:31  train  3/9 steps\nerror: no space left\n"
        "submitit ERROR (2026) - Submitted job triggered an exception\n"
        "srun: error: n1: task 0: Exited with exit code 1\n"
    )
    assert last_log_line(log) == "error: no space left"
