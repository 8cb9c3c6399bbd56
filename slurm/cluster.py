"""What the cluster's configuration can do, and what to ask its administrator for where it cannot.

A job survives a preemption only if the cluster sends a signal before it kills, and starts the job
again; the reason of a job's end is only remembered where there is accounting.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass

PATIENCE_S = 60


class ClusterError(RuntimeError):
    """No cluster that could be asked, or it refuses."""


def require(program: str) -> None:
    """ClusterError where one of Slurm's programs is missing."""
    if shutil.which(program) is None:
        raise ClusterError(
            f"no {program} on this machine; jobs are submitted from a cluster's login node"
        )


def ask(*words: str) -> str:
    """What one of Slurm's programs prints; ClusterError if it is missing, fails or hangs."""
    require(words[0])
    whole = {**os.environ, "SLURM_BITSTR_LEN": "0"}  # else long lists of jobs end in dots
    try:
        done = subprocess.run(words, env=whole, capture_output=True, text=True, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{words[0]} has not answered within {PATIENCE_S} s") from error
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise ClusterError(f"{' '.join(words[:3])}: {said or f'status {done.returncode}'}")
    return done.stdout


@dataclass(frozen=True)
class Cluster:
    """The configuration, as `scontrol show config` tells it."""

    settings: dict[str, str]
    grace_s: int = 0
    """Of the partition: between a preemption's signal and the kill."""

    @property
    def max_array(self) -> int:
        """Jobs in one array."""
        return max(1, int(self.settings.get("MaxArraySize", "1001")) - 1)

    @property
    def accounts(self) -> bool:
        """Whether the ends of jobs are remembered."""
        kind = self.settings.get("AccountingStorageType", "")
        return "/" in kind and not kind.endswith("/none")

    def warnings(self) -> list[str]:
        """What will be missed, each with the setting that would cure it."""
        found = []
        kind = self.settings.get("PreemptType", "")
        preempts = "/" in kind and not kind.endswith("/none")
        mode = self.settings.get("PreemptMode", "OFF")
        parameters = self.settings.get("SlurmctldParameters", "").split(",")
        if preempts and "preempt_send_user_signal" not in parameters:
            found.append(
                "this cluster preempts jobs without the signal that asks them to save; work since "
                "the last periodic checkpoint will be lost. Ask the administrator for "
                "SlurmctldParameters=preempt_send_user_signal"
            )
        if kind.endswith("/qos"):
            found.append(
                "this cluster preempts by quality of service: whether a job has time to save, and "
                "starts again, is its own GraceTime and PreemptMode; see sacctmgr show qos"
            )
            preempts = False
        if preempts and not self.grace_s:
            found.append(
                "this cluster kills preempted jobs at once; work since the last periodic "
                "checkpoint will be lost. Ask the administrator for GraceTime=120 on the partition"
            )
        if preempts and "REQUEUE" not in mode:
            found.append(
                f"this cluster does not start preempted jobs again (PreemptMode {mode}): take "
                f"--retry-failed afterwards, or ask the administrator for PreemptMode=REQUEUE"
            )
        if not self.accounts:
            found.append(
                "this cluster keeps no accounts: why a job was killed is forgotten after "
                f"{self.settings.get('MinJobAge', 'a few minutes')}. Ask the administrator for "
                "AccountingStorageType=accounting_storage/slurmdbd"
            )
        return found


def cluster(partition: str = "") -> Cluster:
    """The cluster that this machine submits to; ClusterError if none answers."""
    for program in ("sbatch", "srun"):
        require(program)
    settings = parsed(ask("scontrol", "show", "config"))
    return Cluster(settings, grace_s(ask("scontrol", "-o", "show", "partition"), partition))


def parsed(text: str) -> dict[str, str]:
    """Settings by name, of lines "Name = value"."""
    pairs = (line.partition("=") for line in text.splitlines() if " = " in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def grace_s(text: str, partition: str) -> int:
    """GraceTime in seconds, of a partition or the default one, from one line per partition.

    Of several, separated by commas, the least: the cluster chooses among them.
    """
    found = []
    for line in text.splitlines():
        fields = dict(word.partition("=")[::2] for word in line.split())
        if fields.get("PartitionName") in partition.split(",") or (
            not partition and fields.get("Default") == "YES"
        ):
            found.append(_seconds(fields.get("GraceTime", "0")))
    return min(found, default=0)


def _seconds(text: str) -> int:
    """Of "1-02:03:04", "02:03:04" or "120"."""
    days, _, clock = text.rpartition("-")
    seconds = 0
    for part in clock.split(":"):
        seconds = seconds * 60 + int(part)
    return int(days or 0) * 86_400 + seconds
