"""The warnings about a configuration, and the error where there is no cluster."""

from pathlib import Path

import pytest

from slurm.cluster import Cluster, ClusterError, cluster, grace_s, parse_settings
from tests.slurm.fake_programs import fake_programs

SOUND = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "GANG,REQUEUE",
    "SlurmctldParameters": "a,preempt_send_user_signal",
}


def test_each_gap_is_told_with_its_cure() -> None:
    assert Cluster(SOUND, grace_s=60).warnings() == []
    never = {"PreemptType": "(null)", "SlurmctldParameters": "(null)"}
    assert Cluster(SOUND | never).warnings() == []
    quality = {"PreemptType": "preempt/qos", "PreemptMode": "CANCEL"}
    for change, seconds, cure in (
        ({"SlurmctldParameters": "(null)"}, 60, "SlurmctldParameters=preempt_send_user_signal"),
        ({"PreemptMode": "CANCEL"}, 60, "PreemptMode=REQUEUE"),
        ({"AccountingStorageType": "accounting_storage/none"}, 60, "AccountingStorageType="),
        ({"AccountingStorageType": "(null)"}, 60, "AccountingStorageType="),
        ({}, 0, "GraceTime"),
        (quality, 0, "sacctmgr show qos"),  # which the partition does not tell
    ):
        (warning,) = Cluster(SOUND | change, grace_s=seconds).warnings()
        assert cure in warning


def test_settings_are_read_by_name() -> None:
    text = "Configuration data as of 2026\nMaxArraySize            = 501\nPrologFlags = (null)\n"
    assert parse_settings(text) == {"MaxArraySize": "501", "PrologFlags": "(null)"}
    assert Cluster(parse_settings(text)).max_array == 500


def test_grace_is_that_of_the_partition() -> None:
    text = (
        "PartitionName=slow Default=YES GraceTime=00:00:10 X=y\n"
        "PartitionName=fast Default=NO GraceTime=1-02:03:04 X=y\n"
    )
    found = [grace_s(text, partition) for partition in ("", "fast", "none", "fast,slow")]
    assert found == [10, 93_784, 0, 10]


def test_what_slurm_complains_about_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="no sbatch on this machine"):
        cluster()
    lines = dict.fromkeys(("sbatch", "srun", "scontrol"), "echo Unable to contact >&2; exit 1")
    fake_programs(tmp_path, monkeypatch, **lines)
    with pytest.raises(ClusterError, match="scontrol show config: Unable to contact"):
        cluster()
