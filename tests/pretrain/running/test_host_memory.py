"""Free memory of a machine and a process's cgroups, from fake files."""

from pathlib import Path

import pytest

import pretrain.running.host_memory
from pretrain.running.host_memory import (
    CPU_MEMORY,
    DEFAULT_FRACTION,
    JOB_CPUS,
    JOB_MEMORY,
    SHARERS,
    TASK_CPUS,
    TASKS,
    free_memory,
    image_memory,
    image_memory_bytes,
    network_memory_bytes,
    num_cores,
)
from pretrain.running.processes import assume_gpus


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 8,000 kB free, and a process in group job/step."""
    monkeypatch.delenv(JOB_MEMORY, raising=False)
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    (tmp_path / "self/cgroup").write_text("0::/job/step\n")
    (tmp_path / "groups/job/step").mkdir(parents=True)
    return tmp_path


def limit(group: Path, max_bytes: str, used: int, cache: int = 0) -> None:
    (group / "memory.max").write_text(max_bytes)
    (group / "memory.current").write_text(str(used))
    (group / "memory.stat").write_text(f"anon 5\ninactive_file {cache}\n")


def test_without_limits_it_is_what_the_machine_has(machine: Path) -> None:
    limit(machine / "groups/job/step", "max", 100)
    assert free_memory(machine, machine / "groups") == 8000 * 1024


def test_the_tightest_group_counts_and_its_file_cache_is_free(machine: Path) -> None:
    limit(machine / "groups/job/step", "6000000", 1_000_000)
    limit(machine / "groups/job", "3000000", 2_500_000, cache=200_000)
    assert free_memory(machine, machine / "groups") == 700_000


def test_in_a_container_the_visible_root_is_the_group(machine: Path) -> None:
    (machine / "self/cgroup").write_text("0::/unknown/outside\n")
    limit(machine / "groups", "500", 100)
    assert free_memory(machine, machine / "groups") == 400


def test_groups_of_version_1_count_as_well(machine: Path) -> None:
    (machine / "self/cgroup").write_text("5:cpu,cpuacct:/a\n4:memory:/b\n")
    group = machine / "groups/memory/b"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text("900")
    (group / "memory.usage_in_bytes").write_text("1000")
    (group / "memory.stat").write_text("total_inactive_file 50\n")
    assert free_memory(machine, machine / "groups") == 0


def test_a_job_has_no_more_than_slurm_gave_it_in_all_or_per_core(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = 8000 * 1024
    for text, free in [("3", 3 * 2**20), ("0", whole), ("90", whole)]:
        monkeypatch.setenv(JOB_MEMORY, text)
        assert free_memory(machine, machine / "groups") == free
    monkeypatch.delenv(JOB_MEMORY)
    monkeypatch.setenv(CPU_MEMORY, "3")
    for cores, free in [("2", 6 * 2**20), ("", whole)]:
        monkeypatch.setenv(JOB_CPUS, cores)
        assert free_memory(machine, machine / "groups") == free


def test_processes_side_by_side_share_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrain.running.host_memory, "free_memory", lambda: 8_000_000)
    for text, num_processes in [("4", 4), ("", 1), ("0", 1), ("many", 1)]:
        monkeypatch.setenv(SHARERS, text)
        assert image_memory_bytes() == int(8_000_000 * DEFAULT_FRACTION) // num_processes
        assert image_memory_bytes(8) == int(1_000_000 * DEFAULT_FRACTION)
        with image_memory(1.5):
            assert image_memory_bytes() == 1_500_000_000, "an option of each process"
        with image_memory(0):
            assert image_memory_bytes() == 0


@pytest.mark.parametrize(("gpus", "expected"), [(0, 1_000_000), (1, 500_000)])
def test_networks_fit_into_a_share_of_the_machine_and_of_its_gpu(
    gpus: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrain.running.host_memory, "free_memory", lambda: 8_000_000)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (2_000_000, 9_000_000))
    monkeypatch.setenv(SHARERS, "2")
    with assume_gpus(gpus):
        assert network_memory_bytes() == expected


@pytest.mark.parametrize(
    ("available", "variables", "expected"),
    [
        (64, "", 64),
        (64, "WORLD_SIZE=8 LOCAL_WORLD_SIZE=8", 8),
        (64, "WORLD_SIZE=200 LOCAL_WORLD_SIZE=100", 1),
        # torchrun in one task per node
        (64, "WORLD_SIZE=16 LOCAL_WORLD_SIZE=8 SLURM_STEP_NUM_TASKS=2 SLURM_CPUS_PER_TASK=64", 8),
        # tasks of srun: bound to their cores, not bound, and without --cpus-per-task
        (8, "WORLD_SIZE=16 LOCAL_WORLD_SIZE=8 SLURM_STEP_NUM_TASKS=16 SLURM_CPUS_PER_TASK=8", 8),
        (64, "WORLD_SIZE=16 LOCAL_WORLD_SIZE=8 SLURM_STEP_NUM_TASKS=16 SLURM_CPUS_PER_TASK=6", 6),
        (8, "WORLD_SIZE=16 LOCAL_WORLD_SIZE=8 SLURM_STEP_NUM_TASKS=16 SLURM_CPUS_ON_NODE=64", 8),
        (64, "WORLD_SIZE=16 LOCAL_WORLD_SIZE=8 SLURM_STEP_NUM_TASKS=16 SLURM_CPUS_ON_NODE=48", 6),
        # processes that one task has started
        (8, "WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 SLURM_STEP_NUM_TASKS=1 SLURM_CPUS_PER_TASK=8", 4),
        # a single process in a job with another launcher's variable
        (8, "LOCAL_WORLD_SIZE=8", 8),
        (8, "SSL_BENCHMARK_SHARERS=4 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2", 1),
    ],
)
def test_cores_of_a_process(
    available: int, variables: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(available))
    for name in (SHARERS, JOB_CPUS, TASKS, TASK_CPUS, "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for variable in variables.split():
        monkeypatch.setenv(*variable.split("="))
    assert num_cores() == expected
