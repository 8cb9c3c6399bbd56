"""The script of sbatch; a submission is accepted as a whole or cancelled."""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm.__main__ import main
from slurm.cluster import Cluster, ClusterError
from slurm.requeue import Command
from slurm.resources import Queue, RequestError, Resources
from slurm.submit import Array, hide_job_variables, script, submit
from tests.slurm.fake_programs import fake_programs

JOB = Command(("true",))
SBATCH = """
echo "$(grep -c . "$1") $(grep dependency= "$1") $(grep array= "$1")" >> {folder}/accepted
number=$(wc -l < {folder}/accepted)
[ $number -le {accepted} ] || {{ echo "Invalid qos specification" >&2; exit 1; }}
echo "Submitted batch job $number"
"""


def a_cluster(folder: Path, monkeypatch: pytest.MonkeyPatch, *, accepted: int) -> None:
    """Programs that accept so many arrays and refuse the next."""
    sbatch = SBATCH.format(folder=folder, accepted=accepted)
    scancel = f'echo "$@" >> {folder}/cancelled'
    fake_programs(folder, monkeypatch, sbatch=sbatch, scancel=scancel, srun="")


def array(number: int, after: tuple[int, ...] = ()) -> Array:
    return Array(name="cells", work=(JOB,) * number, resources=Resources(), after=after)


def test_the_script_asks_for_what_the_array_asks_for() -> None:
    asked = Array(
        name="cells",
        work=(JOB,) * 6,
        resources=Resources(gpus=2, processes=1, cpus=4, memory_gb=1.5, hours=3),
        parallel=2,
    )
    queue = Queue(
        partition="gpu", qos="high", account="me", constraint="a100", exclude_nodes="n[1-2]"
    )
    lines = script(asked, queue, Path("/shared/jobs")).splitlines()
    for option in (
        "array=0-5%2",
        "gpus-per-node=2",
        "ntasks-per-node=1",
        "cpus-per-task=4",
        "mem=1536MB",
        "time=180",
        "partition=gpu",
        "qos=high",
        "account=me",
        "constraint=a100",
        "exclude='n[1-2]'",
        "signal=USR2@120",
        "requeue",
    ):
        assert f"#SBATCH --{option}" in lines


def test_the_script_says_what_sbatch_cannot() -> None:
    several = Array(name="many", work=(JOB,), resources=Resources(nodes=2, cpus=3))
    queue = Queue(setup=("module load cuda",), gpu_type="a100", partition="gpu")
    text = script(several, queue, Path("/x"))
    (line,) = [line for line in text.splitlines() if "srun" in line]
    assert "--cpus-per-task=3" in line
    assert "--kill-on-bad-exit=1" in line
    assert text.index("module load cuda || {") < text.index("srun")
    assert "a100" not in text  # no GPU is asked for
    two = replace(array(1), resources=Resources(gpus=2), partition="cpu")
    text = script(two, queue, Path("/x"))
    assert "#SBATCH --gpus-per-node=a100:2" in text
    assert "#SBATCH --partition=cpu" in text


def test_a_later_array_waits_for_the_end_of_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_cluster(tmp_path, monkeypatch, accepted=9)
    jobs = submit(
        [array(2), array(1), array(1, after=(0, 1))], Queue(), tmp_path / "jobs", Cluster({})
    )
    assert jobs == [["1_0", "1_1"], ["2"], ["3"]]
    assert "dependency=afterany:1:2" in (tmp_path / "accepted").read_text().splitlines()[2]


def test_what_was_accepted_before_a_refusal_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_cluster(tmp_path, monkeypatch, accepted=2)
    with pytest.raises(
        ClusterError, match=r"(?s)cells was not submitted from .*: .*Invalid qos.*cancelled"
    ):
        submit([array(2), array(1), array(1)], Queue(), tmp_path / "jobs", Cluster({}))
    assert (tmp_path / "cancelled").read_text().split() == ["1_0", "1_1", "2"]


def test_an_array_that_is_too_large_is_split_and_bounded_pieces_follow_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_cluster(tmp_path, monkeypatch, accepted=9)
    both = [array(5), replace(array(5), parallel=2)]
    free, bounded = submit(both, Queue(), tmp_path / "jobs", Cluster({"MaxArraySize": "3"}))
    assert free == ["1_0", "1_1", "2_0", "2_1", "3"]
    assert bounded == ["4_0", "4_1", "5_0", "5_1", "6"]
    accepted = (tmp_path / "accepted").read_text().splitlines()
    waits = [re.findall("afterany:[0-9:]+", line) for line in accepted]
    assert waits == [[], [], [], [], ["afterany:4"], ["afterany:5"]]


def test_what_was_accepted_unknown_to_us_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when the pickles of an accepted array are to be moved."""
    a_cluster(tmp_path, monkeypatch, accepted=9)
    fake_programs(tmp_path, monkeypatch, squeue=f"echo '1|{tmp_path}/jobs'; echo '8|other'")

    def full(*words: object, **options: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("submitit.core.utils.JobPaths.move_temporary_file", full)
    with pytest.raises(ClusterError, match=r"no space left on device; .* is cancelled"):
        submit([array(2)], Queue(), tmp_path / "jobs", Cluster({}))
    assert (tmp_path / "cancelled").read_text().split() == ["1"]


def test_a_job_hands_nothing_on_to_what_it_submits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    for name in ("SLURM_CONF", "SLURM_NTASKS", "SBATCH_ACCOUNT", "RANK"):
        monkeypatch.setenv(name, "1")
    before = dict(os.environ)
    with hide_job_variables():
        assert dict(os.environ) == before
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with hide_job_variables():
        assert before.keys() - os.environ.keys() == {"SLURM_NTASKS", "RANK"}
        assert "SLURM_JOB_ID" not in os.environ
    assert dict(os.environ) == before | {"SLURM_JOB_ID": "7"}


def test_each_gpu_has_a_process_and_each_job_a_warning_within_its_time() -> None:
    asked = (Resources(gpus=8), Resources(), Resources(gpus=8, processes=1))
    assert [one.processes_per_node for one in asked] == [8, 1, 1]
    for hours, time, signal_s in ((0.01, 1, 20), (0.05, 3, 60), (4, 240, 120)):
        lines = script(replace(array(1), resources=Resources(hours=hours)), Queue(), Path("/x"))
        assert f"#SBATCH --time={time}\n" in lines
        assert f"#SBATCH --signal=USR2@{signal_s}\n" in lines


def test_a_wrong_request_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"nodes": 0, "gpus": -1, "hours": 0.0}
    for name, value in sizes.items():
        with pytest.raises(RequestError, match=f"^--{name} .*: expected at least"):
            Resources(**{name: value})
    monkeypatch.setenv("PATH", str(tmp_path))  # no sbatch here
    found = [main(words) for words in ([], ["--nodes", "0", "--", "true"], ["--", "true"])]
    assert found == [2, 2, 2]
