"""The warnings about a configuration, and the error without a cluster."""

import math
from pathlib import Path

import pytest

from slurm.cluster import Cluster, ClusterError, NoResponseError, ask, cluster
from tests.slurm.fake_programs import fake_programs

SOUND = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "GANG,REQUEUE",
    "SlurmctldParameters": "a,preempt_send_user_signal",
}


def test_each_gap_is_told_with_its_cure() -> None:
    assert Cluster(SOUND).warnings() == []
    never = {"PreemptType": "(null)", "SlurmctldParameters": "(null)"}
    assert Cluster(SOUND | never).warnings() == []
    for change, cure in (
        ({"SlurmctldParameters": "(null)"}, "SlurmctldParameters=preempt_send_user_signal"),
        ({"PreemptMode": "CANCEL"}, "PreemptMode=REQUEUE"),
        ({"AccountingStorageType": "accounting_storage/none"}, "AccountingStorageType="),
        ({"AccountingStorageType": "(null)"}, "AccountingStorageType="),
    ):
        (warning,) = Cluster(SOUND | change).warnings()
        assert cure in warning


def test_complaints_of_slurm_are_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "Configuration data as of 2026\nMaxArraySize            = 501\nPrologFlags = (null)"
    fake_programs(tmp_path / "sound", monkeypatch, sbatch="", srun="", scontrol=f"echo '{text}'")
    assert cluster().max_array == 500
    low = "PartitionName=low Default=NO MaxTime=1-12:00:00 MaxNodes=UNLIMITED"
    text = f"{low}\nPartitionName=debug Default=YES MaxTime=00:30:00"
    text += "\nPartitionName=free MaxTime=UNLIMITED"
    fake_programs(tmp_path / "sound", monkeypatch, scontrol=f"echo '{text}'")
    assert cluster().partitions == {"low": 36 * 60, "debug": 30, "": 30, "free": math.inf}
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="sbatch is not installed on this machine"):
        cluster()
    lines = dict.fromkeys(("sbatch", "srun", "scontrol"), "echo Unable to contact >&2; exit 1")
    fake_programs(tmp_path, monkeypatch, **lines)
    with pytest.raises(ClusterError, match="scontrol show config: Unable to contact"):
        cluster()


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("exec sleep 60", NoResponseError),
        (
            "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1",
            NoResponseError,
        ),
        ("echo 'Socket timed out on send/recv operation' >&2; exit 1", NoResponseError),
        ("echo 'Invalid partition name specified' >&2; exit 1", ClusterError),
    ],
)
def test_missing_response_is_not_a_refusal(
    program: str, error: type[ClusterError], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("slurm.cluster.PATIENCE_S", 0.5)
    fake_programs(tmp_path, monkeypatch, squeue=program)
    with pytest.raises(ClusterError) as output:
        ask("squeue")
    assert output.type is error
