"""Size, length and queue of a job reach sbatch under its own option names."""

import pytest

from slurm.resources import Queue, RequestError, Resources


def test_each_gpu_has_a_process_unless_told_otherwise() -> None:
    assert Resources(gpus=8).processes_per_node == 8
    assert Resources().processes_per_node == 1
    assert Resources(gpus=8, processes=1).processes_per_node == 1


def test_what_is_not_asked_for_is_left_to_the_cluster() -> None:
    asked = Resources(hours=2).parameters()
    assert asked == {"time": 120, "nodes": 1, "ntasks_per_node": 1, "signal_delay_s": 120}
    assert Queue().parameters() == {}


@pytest.mark.parametrize(
    ("hours", "minutes", "delay_s"), [(0.01, 1, 20), (0.05, 3, 60), (4, 240, 120)]
)
def test_a_job_is_warned_within_its_time(hours: float, minutes: int, delay_s: int) -> None:
    asked = Resources(hours=hours).parameters()
    assert (asked["time"], asked["signal_delay_s"]) == (minutes, delay_s)


def test_other_options_of_sbatch_are_passed_on() -> None:
    queue = Queue(sbatch=("--reservation=course", "exclusive"))
    assert queue.options() == {"reservation": "course", "exclusive": True}


@pytest.mark.parametrize("wrong", [{"nodes": 0}, {"gpus": -1}, {"hours": 0.0}])
def test_senseless_sizes_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(RequestError, match=f"^--{next(iter(wrong))} .*: expected at least"):
        Resources(**wrong)  # type: ignore[arg-type]
