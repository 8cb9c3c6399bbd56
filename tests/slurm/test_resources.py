"""Size, length and queue of a job reach sbatch under its own option names."""

from typing import Any

import pytest

from slurm.resources import RequestError, Resources


def test_each_gpu_has_a_process_unless_told_otherwise() -> None:
    asked = (Resources(gpus=8), Resources(), Resources(gpus=8, processes=1))
    assert [one.processes_per_node for one in asked] == [8, 1, 1]


def test_a_job_is_warned_within_its_time() -> None:
    asked = [Resources(hours=hours).parameters() for hours in (0.01, 0.05, 4)]
    found = [(one["time"], one["signal_delay_s"]) for one in asked]
    assert found == [(1, 20), (3, 60), (240, 120)]


def test_senseless_sizes_are_refused() -> None:
    sizes: dict[str, Any] = {"nodes": 0, "gpus": -1, "hours": 0.0}
    for name, value in sizes.items():
        with pytest.raises(RequestError, match=f"^--{name} .*: expected at least"):
            Resources(**{name: value})
