"""Steps on static tensors equal the loop's, and fit a CUDA graph."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.gpu.static_step import EXCLUDED, StaticStep
from pretrain.data.feed import Batch
from pretrain.data.images import TrainingImages
from pretrain.job import Job
from pretrain.loop import Training, training_step
from pretrain.method import Method
from pretrain.recipes import RECIPES
from tests.fake_cuda.pretend import on_cuda, pretend_cuda
from tests.fake_cuda.watch import Watch
from tests.tiny_methods import LEARNING, tiny_batch, tiny_job, tiny_method

CASES: list[tuple[str, dict[str, Any]]] = [
    ("moco", {"symmetric": True}),
    ("jcl", {"covariance_ramp": "linear"}),
    *((name, {}) for name in LEARNING if name not in EXCLUDED),
]
LARS = ("byol", "simclr", "barlow_twins", "vicreg")
"""Methods that are tested with LARS; the others with SGD."""
NO_IMAGES = TrainingImages(Path(), np.zeros(1600, "S1"), np.array([1]), np.array([1]))


def start(name: str, method: Method, device: str = "cpu") -> tuple[Job, Training]:
    """A run whose learning rate changes with each step."""
    recipe = replace(RECIPES[f"{name}/smoke"], config=method.config, schedule_unit="step")
    if name in LARS:
        recipe = replace(recipe, optimizer="lars")
    job = tiny_job(method, recipe, NO_IMAGES, Path(), device=device, read_every_steps=20)
    return job, Training(job)


def batches(method: Method) -> list[Batch]:
    batch = tiny_batch(method)
    return [
        Batch([view.roll(step, 0) for view in batch.views], [x.roll(step) for x in batch.extras])
        for step in range(4)
    ]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("name", "changes"), CASES)
def test_static_steps_equal_the_loops(name: str, changes: dict[str, Any], device: str) -> None:
    first, *others = [
        Batch([view.to(device) for view in batch.views], [x.to(device) for x in batch.extras])
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
    first = batches(method)[0]
    with pretend_cuda():
        job, training = start(name, method, "cuda:0")
        batch = Batch([*map(on_cuda, first.views)], [*map(on_cuda, first.extras)])
        training_step(job, training, training.method, batch)
        step = StaticStep(job, training, batch)
        step.take(batch)
        with Watch() as watch, patch("benchmarks.gpu.static_step.upload", None):
            step.compute()
        assert watch.waits == {}
        assert watch.faults == []


class Recorder(TorchDispatchMode):
    """Records operations with their numbers and the addresses of tensors from outside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[str] = []
        self.made_inside: dict[int, Any] = {}
        """Results by address, kept so that no address is used twice."""

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = operation(*args, **kwargs or {})
        if operation.namespace == "profiler":
            return result
        inputs = [describe(value, self.made_inside) for value in tree_leaves((args, kwargs))]
        self.operations.append(f"{operation} {inputs}")
        outputs = {address(value): value for value in tree_leaves(result) if is_tensor(value)}
        for value in filter(is_tensor, tree_leaves((args, kwargs))):
            outputs.pop(address(value), None)  # changed in place, or a view
        self.made_inside |= outputs
        return result


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def describe(value: Any, made_inside: dict[int, Any]) -> str:
    if not is_tensor(value):
        return repr(value)
    return "inside" if address(value) in made_inside else str(address(value))


@pytest.mark.parametrize(("name", "changes"), CASES)
def test_captured_part_is_the_same_in_each_step(name: str, changes: dict[str, Any]) -> None:
    """A graph would repeat a number or an address that changes between steps."""
    first, *others = batches(tiny_method(name, **changes))
    job, training = start(name, tiny_method(name, **changes))
    training_step(job, training, training.method, first)
    step = StaticStep(job, training, first)
    step.take(others[0])
    recorded = []
    for batch in others[1:]:
        step.set_inputs(batch)
        with Recorder() as recorder:
            step.compute()
        training.step += 1
        recorded.append(recorder.operations)
    assert len(recorded[0]) > 100
    assert recorded[0] == recorded[1]


@pytest.mark.parametrize("name", EXCLUDED)
def test_other_methods_are_refused(name: str) -> None:
    job, training = start(name, tiny_method(name))
    with pytest.raises(ValueError, match=EXCLUDED[name]):
        StaticStep(job, training, tiny_batch(job.method))
