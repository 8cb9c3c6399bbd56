"""Losses and gradients of each method, on the device against the CPU.

Also in bfloat16, and without waits.

The networks of the smoke recipes have smooth functions instead of ReLU and max pooling. Where an
activation is nearly zero, any rounding may switch a ReLU, and a gradient then jumps by far more
than rounding explains.
"""

import copy
from functools import lru_cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pretrain.data.feed import Batch
from pretrain.method import Method
from pretrain.recipes import RECIPES
from tests.gpu.findings import Findings
from tests.gpu.rounding import BFLOAT16_UNITS, perturb
from tests.gpu.started import Workspace, small_images, smooth, start_job
from tests.gpu.waits import count_waits

METHODS = tuple(
    name.removesuffix("/smoke")
    for name in RECIPES
    if name.endswith("/smoke") and name != "random/smoke"
)
"""Methods that learn."""
PROGRESS = 0.75
"""Completed fraction of the run.

Schedules and LORAC's prior are active then.
"""


@pytest.mark.parametrize("name", METHODS)
def test_a_step_in_float32(name: str, workspace: Workspace, findings: Findings) -> None:
    """Loss, gradients and buffers of a step equal the CPU's."""
    method, batch = smooth_start(workspace, name)
    expected = step_results(copy.deepcopy(method), batch)
    moved = step_results(*perturbed(method, batch, torch.float32))
    result = step_results(*moved_to(workspace.device, method, batch))
    findings.compare(result, expected, [moved])


@pytest.mark.parametrize("name", METHODS)
def test_a_step_in_bfloat16(name: str, workspace: Workspace, findings: Findings) -> None:
    """Loss and gradients under autocast are close to float32 on the device."""
    start = smooth_start(workspace, name)
    changed = perturbed(*start, torch.bfloat16)
    expected = step_results(*moved_to(workspace.device, *start))
    moved = step_results(*moved_to(workspace.device, *changed))
    result = step_results(*moved_to(workspace.device, *start), low=True)
    result, expected, moved = (whole_gradient(item) for item in (result, expected, moved))
    findings.compare(result, expected, [moved], units=BFLOAT16_UNITS, dtype=torch.bfloat16)


@pytest.mark.gpu
@pytest.mark.parametrize("name", METHODS)
def test_a_step_waits_only_where_it_has_to(name: str, tmp_path: Path, findings: Findings) -> None:
    workspace = Workspace(device=torch.device("cuda"), folder=tmp_path)
    count_waits(workspace, name, findings)


@lru_cache(maxsize=1)
def smooth_start(workspace: Workspace, name: str) -> tuple[Method, Batch]:
    """Return a smoke recipe's method and its first batch, on the CPU.

    Its activations are smooth.
    """
    on_cpu = Workspace(device=torch.device("cpu"), folder=workspace.folder)
    job = start_job(f"{name}/smoke", on_cpu, small_images(workspace))
    batches = job.feed.batches(0, 1)
    batch = next(batches)
    batches.close()
    return smooth(job.method).train(), batch


def step_results(method: Method, batch: Batch, *, low: bool = False) -> dict[str, Tensor]:
    """Return loss, gradients, and buffers and other weights after the step.

    By name. Other weights are those without gradient. low: bfloat16 under autocast, as in training.
    """
    torch.manual_seed(0)
    with torch.autocast(batch.views[0].device.type, torch.bfloat16, enabled=low):
        metrics = method(batch.views, PROGRESS, *batch.extras)
    loss = metrics["loss"]
    loss.backward()
    results = {"loss": loss.detach()}
    for name, weight in method.named_parameters():
        if weight.grad is not None:
            results[f"gradient of {name}"] = weight.grad
        elif not weight.requires_grad:
            results[name] = weight.detach()
    results |= dict(method.named_buffers())
    return {name: values.cpu() for name, values in results.items()}


def whole_gradient(results: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the loss () and all gradients as one vector (num_weights,)."""
    gradients = [rows.flatten() for name, rows in results.items() if name.startswith("gradient")]
    return {"loss": results["loss"], "gradient": torch.cat(gradients)}


def perturbed(method: Method, batch: Batch, dtype: torch.dtype) -> tuple[Method, Batch]:
    """Return copies of weights and views, changed by one unit of rounding.

    The unit is the dtype's.
    """
    generator = torch.Generator().manual_seed(1)
    method = copy.deepcopy(method)
    views = [view.clone() for view in batch.views]
    perturb([*method.parameters(), *views], dtype, generator)
    return method, batch._replace(views=views)


def moved_to(device: torch.device, method: Method, batch: Batch) -> tuple[Method, Batch]:
    """Return copies on a device in channels_last, as in training."""
    last = torch.channels_last
    views = [view.to(device).contiguous(memory_format=last) for view in batch.views]
    method = copy.deepcopy(method).to(device).to(memory_format=last)
    return method, Batch(views, [rows.to(device) for rows in batch.extras])
