"""Steps on static tensors equal the loop's, and fit a CUDA graph."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from benchmarks.gpu.static_step import StaticStep
from pretrain.data.feed import Batch
from pretrain.data.images import TrainingImages
from pretrain.job import Job
from pretrain.loop import Training, training_step
from pretrain.method import Method
from pretrain.recipes import RECIPES
from tests.fake_cuda.pretend import on_cuda, pretend_cuda
from tests.fake_cuda.watch import Watch
from tests.tiny_methods import tiny_batch, tiny_config, tiny_job, tiny_method

CASES: list[tuple[str, dict[str, Any]]] = [
    ("moco", {}),
    ("moco", {"symmetric": True}),
    ("jcl", {"covariance_ramp": "linear"}),
]
NO_IMAGES = TrainingImages(Path(), np.zeros(1600, "S1"), np.array([1]), np.array([1]))


def start(name: str, method: Method, device: str = "cpu") -> tuple[Job, Training]:
    """A run whose learning rate changes with each step."""
    recipe = replace(RECIPES[f"{name}/smoke"], config=tiny_config(name), schedule_unit="step")
    job = tiny_job(method, recipe, NO_IMAGES, Path(), device=device, read_every_steps=20)
    return job, Training(job)


def batches(method: Method) -> list[Batch]:
    batch = tiny_batch(method)
    return [Batch([view.roll(step, 0) for view in batch.views], []) for step in range(4)]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("name", "changes"), CASES)
def test_static_steps_equal_the_loops(name: str, changes: dict[str, Any], device: str) -> None:
    first, *others = [
        Batch([view.to(device) for view in batch.views], [])
        for batch in batches(tiny_method(name, **changes))
    ]
    job, training = start(name, tiny_method(name, **changes), device)
    for batch in (first, *others):
        training_step(job, training, training.method, batch)
    expected = training.state_dict()

    job, training = start(name, tiny_method(name, **changes), device)
    training_step(job, training, training.method, first)
    step = StaticStep(job, training, first)
    for batch in others:
        step.take(batch)
        if device == "cuda" and step.graph is None:
            step.capture()
    result = training.state_dict()
    assert result["step"] == 4
    # a GPU may add up gradients in another order
    rtol, atol = (0.0, 0.0) if device == "cpu" else (1e-3, 1e-4)
    for state in (expected, result):
        state["optimizer"] = state["optimizer"]["state"]  # without rates, which are numbers
    torch.testing.assert_close(result, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("name", "changes"), CASES)
def test_captured_part_neither_waits_nor_uploads(name: str, changes: dict[str, Any]) -> None:
    method = tiny_method(name, **changes)
    views = batches(method)[0].views
    with pretend_cuda():
        job, training = start(name, method, "cuda:0")
        batch = Batch([*map(on_cuda, views)], [])
        training_step(job, training, training.method, batch)
        step = StaticStep(job, training, batch)
        step.take(batch)
        with Watch() as watch, patch("benchmarks.gpu.static_step.upload", None):
            step.compute()
        assert watch.waits == {}
        assert watch.faults == []


def test_other_methods_are_refused() -> None:
    job, training = start("byol", tiny_method("byol"))
    with pytest.raises(ValueError, match="moco"):
        StaticStep(job, training, tiny_batch(job.method))
