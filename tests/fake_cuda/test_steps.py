"""A step of each method on pretend CUDA tensors, on one process and on one of eight."""

import pytest
import torch

from tests.fake_cuda.budget import allowed_waits
from tests.fake_cuda.pretend import CUDA
from tests.fake_cuda.steps import take_step
from tests.tiny_methods import LEARNING


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize("num_processes", [1, 8])
def test_a_step_would_be_right_on_a_gpu(name: str, num_processes: int) -> None:
    """It raises if a tensor was left on the CPU, or if a gradient is unlike its input."""
    step = take_step(name, num_processes)
    kinds = {key: (value.dtype, value.device, value.shape) for key, value in step.metrics.items()}
    assert kinds == dict.fromkeys({"loss"} | kinds.keys(), (torch.float32, CUDA, ()))
    assert step.watch.faults == []  # half precision in a loss, collectives of other tensors
    assert step.without_gradient == []
    passes = step.watch.num_sync_norms
    assert step.watch.waits == allowed_waits("step of pre-training", name, num_passes=passes)
