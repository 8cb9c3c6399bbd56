"""Disturbed jobs on a real cluster end with the undisturbed result."""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurm.cluster import cluster
from slurm.requeue import MAX_KILLS, Command
from slurm.resources import Queue, Resources
from slurm.state import JobState, job_states, last_log_line, log_path
from slurm.submit import Array, submit
from tests.slurm.conftest import wait_for_all, wait_until
from tests.slurm.pretend_cluster import NODES, PretendCluster

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.xdist_group("slurm")]
COUNTING = (sys.executable, str(Path(__file__).with_name("counting.py")))
STEPS = 40
LIMITED_STEPS = 450
"""Three quarters of the time limit; the signal comes after a third."""
SURVIVED = {
    "preempted": 2,
    "interrupted": 2,
    "only_sigterm": 2,
    "command_killed": 2,
    "job_killed": 2,
    "node_died": 2,
    "time_limit": 2,
    "deaf": 2,
    "node_of_two_died": 2,
    "rank_killed": 1,  # it counts in the other process, which the first start may have ended
}
"""Fault -> minimum number of starts of its job."""
FIRST_RANK_COUNTS = " ".join((*COUNTING, "{file}", str(STEPS)))
RANK_KILLED = (
    '[ "$RANK" = 1 ] && [ ! -e {file}.killed ] && touch {file}.killed && kill -9 $$; '
    f'[ "$RANK" = 1 ] || exec {FIRST_RANK_COUNTS}'
)
DEAF = (
    "echo 0 >> {file}.starts; [ $(wc -l < {file}.starts) = 1 ] || { echo 40 > {file}; exit 0; }; "
    "trap '' TERM; exec sleep 600"
)
"""It ignores SIGTERM at its first time limit, and then ends immediately."""
PEER_GONE = (
    '[ "$RANK" = 1 ] && { [ -e {file}.gone ] && exit 0; sleep 600; }; '
    "[ -e {file}.starts ] || { echo 0 >> {file}.starts; "
    "while [ ! -e {file}.gone ]; do sleep 0.1; done; exit 1; }; "
    "echo 0 >> {file}.starts; echo 40 > {file}"
)
"""The first process fails after its peer's node, like a collective operation."""
RANK_FAILS = '[ "$RANK" = 1 ] && exit 4; sleep 600'
ONE, BOTH = Resources(cpus=1, hours=1), Resources(nodes=2, cpus=1, hours=1)
SHORT, WHOLE = Resources(cpus=1, hours=1 / 60), Resources(cpus=64, hours=1)


@dataclass
class Outcome:
    """The jobs of a test and how they ended."""

    folder: Path
    jobs: dict[str, str] = field(default_factory=dict)
    states: dict[str, JobState] = field(default_factory=dict)

    def counted(self, name: str) -> int:
        return int((self.folder / name).read_text())

    def starts(self, name: str) -> int:
        return len((self.folder / f"{name}.starts").read_text().split())

    def log(self, name: str) -> str:
        return (self.folder / f"{self.jobs[name]}_0_log.out").read_text()

    def submit(
        self,
        commands: dict[str, Command],
        requested: Resources,
        node: str = "",
        partition: str = "",
    ) -> None:
        queue = Queue(partition=partition, sbatch=(f"nodelist={node}",) * bool(node))
        array = Array(name="test", commands=tuple(commands.values()), resources=requested)
        (ids,) = submit([array], queue, self.folder, cluster())
        self.jobs |= dict(zip(commands, ids, strict=True))

    def counting(self, *names: str, steps: int = STEPS, gate: str = "gate") -> dict[str, Command]:
        """Jobs that wait at half of their steps until the gate opens."""
        count_args = (str(steps), str(self.folder / gate))
        return {name: Command((*COUNTING, str(self.folder / name), *count_args)) for name in names}


@pytest.fixture(scope="module")
def outcome(running_cluster: PretendCluster) -> Iterator[Outcome]:
    """All faults at once, each on one job, since jobs mostly wait."""
    patch = pytest.MonkeyPatch()
    patch.setenv("SLURM_CONF", str(running_cluster.conf))
    patch.setenv("PATH", running_cluster.environment["PATH"])
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as name:
        outcome = Outcome(Path(name))
        try:
            disturb(running_cluster, outcome)
            states = wait_for_all(list(outcome.jobs.values()))
            outcome.states = {name: states[job] for name, job in outcome.jobs.items()}
            yield outcome
        finally:
            running_cluster.tell("scancel", "--me")
            patch.undo()


def disturb(pretend: PretendCluster, outcome: Outcome) -> None:
    """Submit jobs, and cause all faults before a job passes half."""
    requested = ("undisturbed", "interrupted", "only_sigterm", "command_killed", "job_killed")
    outcome.submit(outcome.counting(*requested), ONE, NODES[0])
    outcome.submit(outcome.counting("cancelled"), ONE, NODES[0])
    outcome.submit(outcome.counting("time_limit", steps=LIMITED_STEPS, gate="."), SHORT, NODES[0])
    outcome.submit(outcome.counting("preempted"), ONE, NODES[1])
    deaf = DEAF.replace("{file}", str(outcome.folder / "deaf"))
    outcome.submit({"deaf": bash(deaf)}, SHORT, NODES[0])
    broken = {"always_killed": "kill -9 $$", "always_fails": "echo no such file >&2; exit 3"}
    outcome.submit({name: bash(line) for name, line in broken.items()}, ONE, NODES[0])
    for name in (*requested, "cancelled", "preempted", "time_limit"):
        wait_until((outcome.folder / name).exists)
    jobs = outcome.jobs
    pretend.tell("scancel", "--signal=TERM", jobs["interrupted"])  # as submitit's _interrupt does
    pretend.tell("scancel", "--signal=USR2", jobs["interrupted"])
    pretend.tell("scancel", "--signal=TERM", jobs["only_sigterm"])
    pretend.tell("scancel", jobs["cancelled"])
    pretend.kill(*running(str(outcome.folder / "command_killed")))
    pretend.kill(*leaders(pretend, jobs["job_killed"]))
    outcome.submit({"urgent": bash("sleep 1")}, WHOLE, NODES[1], partition="urgent")
    (outcome.folder / "gate").touch()
    wait_for_all([jobs["urgent"]])
    file = outcome.folder / "rank_killed"
    outcome.submit({"rank_killed": bash(RANK_KILLED.format(file=file))}, BOTH)
    outcome.submit({"rank_fails": bash(RANK_FAILS)}, BOTH)
    wait_for_all([jobs["rank_killed"], jobs["rank_fails"]])
    outcome.submit(outcome.counting("node_died", gate="second_gate"), ONE, NODES[1])
    pair = outcome.folder / "node_of_two_died"
    outcome.submit({pair.name: bash(PEER_GONE.replace("{file}", str(pair)))}, BOTH)
    wait_until((outcome.folder / "node_died").exists)
    wait_until(pair.with_suffix(".starts").exists)
    pretend.kill(*everything_on(pretend, NODES[1]))
    pair.with_suffix(".gone").touch()
    wait_until(lambda: job_states([jobs["node_died"]])[jobs["node_died"]].stage == "queued")
    (outcome.folder / "second_gate").touch()
    pretend.start_node(NODES[1])


def bash(line: str) -> Command:
    return Command(("bash", "-c", line))


def running(arg: str, program: str = "counting.py") -> list[int]:
    """Processes of a program with this argument on their command line.

    Processes that wait for the program are excluded.
    """
    return [
        pid
        for pid, args, _ in processes()
        if arg in args and any(path.endswith(program) for path in args[1:3])
    ]


def leaders(pretend: PretendCluster, job: str) -> list[int]:
    """The process that Slurm has started for a job or array element."""
    array, _, element = job.partition("_")
    names = {f"SLURM_ARRAY_JOB_ID={array}", f"SLURM_ARRAY_TASK_ID={element}", "SLURM_PROCID=0"}
    return [
        pid
        for pid, args, settings in of_cluster(pretend)
        if "submitit.core._submit" in args and "srun" not in args[0] and names <= settings
    ]


def everything_on(pretend: PretendCluster, node: str) -> list[int]:
    """Return the processes that end when a node loses power."""
    result = list(of_cluster(pretend))
    jobs = [pid for pid, _, settings in result if f"SLURMD_NODENAME={node}" in settings]
    parents = {_parent(pid) for pid in jobs}
    daemons = [
        pid
        for pid, args, settings in result
        if (pid in parents and args[0].startswith("slurmstepd"))
        or ("slurmd" in args[0] and node in args)
    ]
    return [*daemons, *jobs]


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def of_cluster(pretend: PretendCluster) -> Iterator[tuple[int, list[str], set[str]]]:
    """Yield this cluster's daemons and jobs.

    Other clusters may use the same names.
    """
    mine = f"SLURM_CONF={pretend.conf}"
    return (process for process in processes() if mine in process[2])


def processes() -> Iterator[tuple[int, list[str], set[str]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            args = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            settings = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
            if len(args) > 1:
                yield int(folder.name), args, set(settings)


def test_a_disturbed_job_ends_as_an_undisturbed_one(outcome: Outcome) -> None:
    ends = {
        fault: (
            outcome.states[fault].slurm_state,
            outcome.counted(fault),
            outcome.starts(fault) >= starts,
        )
        for fault, starts in SURVIVED.items()
    }
    expected = dict.fromkeys(SURVIVED, ("COMPLETED", STEPS, True))
    assert ends == expected | {"time_limit": ("COMPLETED", LIMITED_STEPS, True)}


def test_an_undisturbed_job_starts_once(outcome: Outcome) -> None:
    assert (outcome.counted("undisturbed"), outcome.starts("undisturbed")) == (STEPS, 1)


def test_a_cancelled_job_stays_cancelled(outcome: Outcome) -> None:
    assert outcome.states["cancelled"].slurm_state == "CANCELLED"
    assert outcome.starts("cancelled") == 1
    assert outcome.counted("cancelled") <= STEPS // 2


def test_a_job_that_always_fails_runs_once_and_says_why(outcome: Outcome) -> None:
    log = log_path(outcome.folder, outcome.jobs["always_fails"])
    assert last_log_line(log) == "no such file"


def test_a_job_that_is_always_killed_is_given_up(outcome: Outcome) -> None:
    assert outcome.states["always_killed"].slurm_state == "FAILED"
    error = last_log_line(log_path(outcome.folder, outcome.jobs["always_killed"]))
    assert error.endswith(
        f"killed by SIGKILL in {MAX_KILLS + 1} starts; perhaps it needs more memory"
    )


def test_a_process_that_fails_alone_ends_the_others(outcome: Outcome) -> None:
    assert outcome.states["rank_fails"].slurm_state == "FAILED"
    error = last_log_line(log_path(outcome.folder, outcome.jobs["rank_fails"]))
    # it might have been a dead node
    assert error.endswith(f"exit status 4 in {MAX_KILLS + 1} starts")
