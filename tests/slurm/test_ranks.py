"""The variables that torchrun would have set."""

from dataclasses import dataclass, field

from slurm.requeue import environment


@dataclass
class FourProcesses:
    """The third of four, the first on its node."""

    job_id: str = "12_3"
    hostnames: list[str] = field(default_factory=lambda: ["node7", "node9"])
    num_tasks: int = 4
    num_nodes: int = 2
    global_rank: int = 2
    local_rank: int = 1


def test_processes_meet_on_the_first_node() -> None:
    found = environment(FourProcesses(), {"HOME": "/root"})
    port = int(found.pop("MASTER_PORT"))
    assert 20_000 <= port <= 32_000
    assert found == {
        "HOME": "/root",
        "MASTER_ADDR": "node7",
        "RANK": "2",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
    }


def test_all_processes_of_a_start_choose_one_port_and_the_next_start_another() -> None:
    first = [environment(FourProcesses(global_rank=r), {})["MASTER_PORT"] for r in range(4)]
    again = environment(FourProcesses(), {"SLURM_RESTART_COUNT": "1"})["MASTER_PORT"]
    assert len({*first}) == 1
    assert again != first[0]


def test_gpus_that_are_seen_are_indexed_and_left_alone() -> None:
    found = [environment(FourProcesses(), {"CUDA_VISIBLE_DEVICES": gpus}) for gpus in ("2,3", "3")]
    told = [(one["CUDA_VISIBLE_DEVICES"], one["LOCAL_RANK"]) for one in found]
    assert told == [("2,3", "1"), ("3", "0")]
