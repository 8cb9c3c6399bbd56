"""One step of each method on pretend CUDA tensors.

With 1 and with 8 processes.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pretrain.data.feed import Batch
from pretrain.data.images import TrainingImages
from pretrain.loop import Training, training_step
from pretrain.method import Method
from pretrain.recipes import RECIPES
from tests.fake_cuda.pretend import on_cuda, pretend_cuda, pretend_processes
from tests.fake_cuda.steps import Step, check_step, watch_step
from tests.tiny_methods import LEARNING, tiny_batch, tiny_config, tiny_job, tiny_method

NUM_IMAGES = {1: 8, 8: 4}
"""Images of each process.

Eight processes together have as many as the tiny queues hold.
"""
NO_IMAGES = TrainingImages(Path(), np.zeros(1600, "S1"), np.array([1]), np.array([1]))
"""Image names for a hundred batches."""


def take_step(method: Method, batch: Batch, name: str) -> Step:
    """Return one step of a method, with the named recipe.

    Method and batch are on the CPU before.
    """
    with pretend_cuda():
        moved = Batch([*map(on_cuda, batch.views)], [*map(on_cuda, batch.extras)])
        recipe = replace(RECIPES[f"{name}/smoke"], config=tiny_config(name))
        job = tiny_job(method, recipe, NO_IMAGES, Path(), device="cuda:0", read_every_steps=20)
        training = Training(job)
        training.step = job.num_steps - 2
        return watch_step(method, lambda: training_step(job, training, method, moved))


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize("num_processes", [1, 8])
def test_a_step_would_be_right_on_a_gpu(name: str, num_processes: int) -> None:
    """Tensors left on the CPU, or gradients with wrong shapes, raise errors."""
    with pretend_processes(num_processes):
        method = tiny_method(name)
        batch = tiny_batch(method, num_images=NUM_IMAGES[num_processes])
        step = take_step(method, batch, name)
    assert "loss" in step.numbers
    check_step(step, "step of pre-training", name)
