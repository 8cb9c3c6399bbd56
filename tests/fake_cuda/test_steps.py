"""A step of each method, as the loop takes it, on pretend CUDA tensors: one process, one of 8."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pretrain.command import Command
from pretrain.data.feed import Batch, Feed
from pretrain.data.images import BatchPlan, TrainingImages
from pretrain.data.views import ViewRecipe
from pretrain.loop import Training, training_step
from pretrain.method import Method
from pretrain.recipes import RECIPES
from pretrain.run import Job
from pretrain.running.processes import Process
from tests.fake_cuda.pretend import CUDA, on_cuda, pretend_cuda, pretend_processes
from tests.fake_cuda.steps import Step, check_step, watch_step
from tests.fake_cuda.watch import Watch
from tests.tiny_methods import LEARNING, tiny_batch, tiny_config, tiny_method

NUM_IMAGES = {1: 8, 8: 4}
"""Images of each process; as many as the tiny queues hold in eight processes together."""
NO_IMAGES = TrainingImages(Path(), np.array([], np.bytes_), np.array([1]), np.array([1]))


def take_step(method: Method, batch: Batch, name: str) -> Step:
    """Return one step of a method on a batch, both on the CPU, with the recipe of a name."""
    with pretend_cuda():
        moved = Batch([*map(on_cuda, batch.views)], [*map(on_cuda, batch.extras)])
        job = _job(method, name)
        training = Training(job)
        training.step = job.num_steps - 2
        return watch_step(method, lambda: training_step(job, training, method, moved))


@pytest.mark.parametrize("name", ["moco", "dino"])
def test_a_step_after_a_resume_has_momenta_of_the_weights_layout(name: str) -> None:
    """A checkpoint's momenta are contiguous, as a run without channels_last leaves them."""
    method = tiny_method(name)
    batch = tiny_batch(method, num_images=NUM_IMAGES[1])
    with pretend_cuda(), Watch():
        moved = Batch([on_cuda(view) for view in batch.views], [])
        job = _job(method, name)
        first = Training(job)
        training_step(job, first, method, moved)  # the last layer of DINO has no gradient yet
        state = first.optimizer.state_dict()
        for momenta in state["state"].values():
            momenta["momentum_buffer"] = momenta["momentum_buffer"].contiguous()
        resumed = Training(job)
        resumed.load_state_dict(first.state_dict() | {"optimizer": state})
        resumed.step = job.num_steps - 2
        training_step(job, resumed, method, moved)


def _job(method: Method, name: str) -> Job:
    recipe = replace(RECIPES[f"{name}/smoke"], config=tiny_config(name))
    plan = BatchPlan(num_images=100 * recipe.batch_size, batch_size=recipe.batch_size, seed=0)
    feed = Feed(
        images=NO_IMAGES,
        plan=plan,
        recipe=ViewRecipe(),
        views=method.views,
        device=CUDA,
        workers=0,
        memory_gb=0.0,
    )
    return Job(
        name=name,
        command=Command(data=Path(), out=Path(), recipe=recipe),
        method=method,
        feed=feed,
        num_steps=200,
        settings={},
        process=Process(device=CUDA),
    )


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize("num_processes", [1, 8])
def test_a_step_would_be_right_on_a_gpu(name: str, num_processes: int) -> None:
    """It raises if a tensor was left on the CPU, or if a gradient is unlike its input."""
    with pretend_processes(num_processes):
        method = tiny_method(name)
        batch = tiny_batch(method, num_images=NUM_IMAGES[num_processes])
        step = take_step(method, batch, name)
    assert "loss" in step.numbers
    check_step(step, "step of pre-training", name)
