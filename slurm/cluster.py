"""The configuration of the cluster, and warnings about what it lacks.

A job survives a preemption only if the cluster sends a signal before it kills, and starts the job
again. Why a job ended is only known where there is accounting.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass

PATIENCE_S = 60


class ClusterError(RuntimeError):
    """No cluster answers, or it refuses a request."""


def require(program: str) -> None:
    """Raise a ClusterError if one of Slurm's programs is missing."""
    if shutil.which(program) is None:
        raise ClusterError(
            f"no {program} on this machine; jobs are submitted from a cluster's login node"
        )


def ask(*words: str) -> str:
    """Return what one of Slurm's programs prints; ClusterError if it is missing, fails or hangs."""
    require(words[0])
    settings = {**os.environ, "SLURM_BITSTR_LEN": "0"}  # otherwise long lists of jobs end in dots
    try:
        process = subprocess.run(
            words, env=settings, capture_output=True, text=True, timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{words[0]} has not answered within {PATIENCE_S} s") from error
    if process.returncode:
        message = " ".join((process.stderr or process.stdout).split())
        raise ClusterError(f"{' '.join(words[:3])}: {message or f'status {process.returncode}'}")
    return process.stdout


@dataclass(frozen=True)
class Cluster:
    """The configuration that `scontrol show config` prints."""

    settings: dict[str, str]
    grace_s: int = 0
    """Seconds between the signal of a preemption and the kill, for the partition."""

    @property
    def max_array(self) -> int:
        """Largest number of jobs in one array."""
        return max(1, int(self.settings.get("MaxArraySize", "1001")) - 1)

    @property
    def has_accounting(self) -> bool:
        """True if there is accounting, which keeps how jobs ended."""
        kind = self.settings.get("AccountingStorageType", "")
        return "/" in kind and not kind.endswith("/none")

    def warnings(self) -> list[str]:
        """Return what the cluster lacks, each with the setting that would mend it."""
        missing = []
        kind = self.settings.get("PreemptType", "")
        preempts = "/" in kind and not kind.endswith("/none")
        mode = self.settings.get("PreemptMode", "OFF")
        parameters = self.settings.get("SlurmctldParameters", "").split(",")
        if preempts and "preempt_send_user_signal" not in parameters:
            missing.append(
                "this cluster preempts jobs without the signal that asks them to save; work since "
                "the last periodic checkpoint will be lost. Ask the administrator for "
                "SlurmctldParameters=preempt_send_user_signal"
            )
        if kind.endswith("/qos"):
            missing.append(
                "this cluster preempts by quality of service: whether a job has time to save, and "
                "starts again, is its own GraceTime and PreemptMode; see sacctmgr show qos"
            )
            preempts = False
        if preempts and not self.grace_s:
            missing.append(
                "this cluster kills preempted jobs at once; work since the last periodic "
                "checkpoint will be lost. Ask the administrator for GraceTime=120 on the partition"
            )
        if preempts and "REQUEUE" not in mode:
            missing.append(
                f"this cluster does not start preempted jobs again (PreemptMode {mode}): take "
                f"--retry-failed afterwards, or ask the administrator for PreemptMode=REQUEUE"
            )
        if not self.has_accounting:
            missing.append(
                "this cluster keeps no accounts: why a job was killed is forgotten after "
                f"{self.settings.get('MinJobAge', 'a few minutes')}. Ask the administrator for "
                "AccountingStorageType=accounting_storage/slurmdbd"
            )
        return missing


def cluster(partition: str = "") -> Cluster:
    """Return the cluster that this machine submits to; ClusterError if none answers."""
    for program in ("sbatch", "srun"):
        require(program)
    settings = parse_settings(ask("scontrol", "show", "config"))
    return Cluster(settings, grace_s(ask("scontrol", "-o", "show", "partition"), partition))


def parse_settings(text: str) -> dict[str, str]:
    """Return settings by name from lines "Name = value"."""
    pairs = (line.partition("=") for line in text.splitlines() if " = " in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def grace_s(text: str, partition: str) -> int:
    """Return the GraceTime of a partition, or of the default one, in seconds.

    `text` has one line per partition. For several partitions, separated by commas, it is the least,
    since the cluster chooses among them.
    """
    times_s = []
    for line in text.splitlines():
        fields = dict(word.partition("=")[::2] for word in line.split())
        if fields.get("PartitionName") in partition.split(",") or (
            not partition and fields.get("Default") == "YES"
        ):
            times_s.append(_seconds(fields.get("GraceTime", "0")))
    return min(times_s, default=0)


def _seconds(text: str) -> int:
    """Return the seconds of "1-02:03:04", "02:03:04" or "120"."""
    days, _, clock = text.rpartition("-")
    seconds = 0
    for part in clock.split(":"):
        seconds = seconds * 60 + int(part)
    return int(days or 0) * 86_400 + seconds
