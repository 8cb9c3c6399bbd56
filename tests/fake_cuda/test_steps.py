"""A step of each method on pretend CUDA tensors, on one process and on one of eight."""

from functools import cache

import pytest
import torch

from tests.fake_cuda.budget import allowed_waits, check_cases
from tests.fake_cuda.pretend import CUDA
from tests.fake_cuda.steps import Step, take_step
from tests.tiny_methods import LEARNING

# the tests of a method share its step, and so its process
every_method = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.xdist_group(f"fake step {name}")) for name in LEARNING],
)
one_and_eight_processes = pytest.mark.parametrize("num_processes", [1, 8])


@cache
def step_of(name: str, num_processes: int) -> Step:
    """Return a step, taken once for all tests.

    It raises if any tensor was left on the CPU, and if a gradient of a Function is unlike its
    input.
    """
    return take_step(name, num_processes)


@every_method
@one_and_eight_processes
def test_metrics_are_float32_scalars_on_the_device(name: str, num_processes: int) -> None:
    metrics = step_of(name, num_processes).metrics
    kinds = {key: (value.dtype, value.device, value.shape) for key, value in metrics.items()}
    assert kinds == dict.fromkeys(metrics, (torch.float32, CUDA, ()))
    assert "loss" in metrics


@every_method
@one_and_eight_processes
def test_no_loss_is_in_half_precision_and_collectives_get_dense_tensors_of_the_device(
    name: str, num_processes: int
) -> None:
    assert step_of(name, num_processes).watch.faults == []


@every_method
@one_and_eight_processes
def test_gradients_reach_all_that_learns(name: str, num_processes: int) -> None:
    assert step_of(name, num_processes).without_gradient == []


@every_method
@one_and_eight_processes
def test_a_step_waits_for_the_device_as_often_as_its_budget_says(
    name: str, num_processes: int
) -> None:
    watch = step_of(name, num_processes).watch
    assert watch.waits == allowed_waits(
        "step of pre-training", name, num_passes=watch.num_sync_norms
    )


def test_the_budget_names_methods_that_exist() -> None:
    check_cases("step of pre-training", LEARNING)
