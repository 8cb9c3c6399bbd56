"""The warnings about a configuration, and the error where there is no cluster."""

import stat
from pathlib import Path

import pytest

from slurm.cluster import Cluster, ClusterError, cluster, grace_s, parse_settings

SOUND = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "GANG,REQUEUE",
    "SlurmctldParameters": "a,preempt_send_user_signal",
}


def test_a_sound_cluster_is_not_complained_about() -> None:
    assert Cluster(SOUND, grace_s=60).warnings() == []


@pytest.mark.parametrize(
    ("change", "cure"),
    [
        ({"SlurmctldParameters": "(null)"}, "SlurmctldParameters=preempt_send_user_signal"),
        ({"PreemptMode": "CANCEL"}, "PreemptMode=REQUEUE"),
        ({"AccountingStorageType": "accounting_storage/none"}, "AccountingStorageType="),
        ({"AccountingStorageType": "(null)"}, "AccountingStorageType="),
    ],
)
def test_each_gap_is_told_with_its_cure(change: dict[str, str], cure: str) -> None:
    (warning,) = Cluster(SOUND | change, grace_s=60).warnings()
    assert f"sk the administrator for {cure}" in warning


def test_no_time_to_save_is_a_gap() -> None:
    (warning,) = Cluster(SOUND, grace_s=0).warnings()
    assert "GraceTime" in warning


def test_a_cluster_that_never_preempts_needs_no_signal() -> None:
    assert (
        Cluster(SOUND | {"PreemptType": "(null)", "SlurmctldParameters": "(null)"}).warnings() == []
    )


def test_settings_are_read_by_name() -> None:
    text = "Configuration data as of 2026\nMaxArraySize            = 501\nPrologFlags = (null)\n"
    assert parse_settings(text) == {"MaxArraySize": "501", "PrologFlags": "(null)"}
    assert Cluster(parse_settings(text)).max_array == 500


def test_preemption_by_quality_of_service_is_not_judged_by_the_partition() -> None:
    (warning,) = Cluster(SOUND | {"PreemptType": "preempt/qos", "PreemptMode": "CANCEL"}).warnings()
    assert "sacctmgr show qos" in warning


@pytest.mark.parametrize(
    ("partition", "seconds"), [("", 10), ("fast", 93_784), ("none", 0), ("fast,slow", 10)]
)
def test_grace_is_that_of_the_partition(partition: str, seconds: int) -> None:
    text = (
        "PartitionName=slow Default=YES GraceTime=00:00:10 X=y\n"
        "PartitionName=fast Default=NO GraceTime=1-02:03:04 X=y\n"
    )
    assert grace_s(text, partition) == seconds


def test_a_machine_without_slurm_is_told_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="no sbatch on this machine"):
        cluster()


def test_what_slurm_complains_about_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("sbatch", "srun", "scontrol"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho Unable to contact the controller >&2\nexit 1\n")
        program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(ClusterError, match="scontrol show config: Unable to contact"):
        cluster()
