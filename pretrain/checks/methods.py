"""Losses and gradients of each method on the device, against the CPU and in bfloat16.

The networks are those of the smoke recipes, with smooth functions in place of ReLU and maximum:
where an activation is nearly zero, any rounding may switch it, and a gradient then jumps by far
more than rounding explains.
"""

import copy
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor, nn

from pretrain.checks.comparison import (
    BFLOAT16_UNITS,
    FLOAT32_UNITS,
    compare,
    perturb,
    summarize,
)
from pretrain.checks.place import Place, full_float32
from pretrain.checks.report import Outcome, judged
from pretrain.checks.started import SMALL_VIEWS, small_images, start_job
from pretrain.data.feed import Batch
from pretrain.method import Method

PROGRESS = 0.5
"""Share of the run that is done; settings that grow are halfway."""


def against_cpu(place: Place, name: str) -> Outcome:
    """Compare loss, gradients and buffers of a step in float32 on the device and on the CPU."""
    method, batch = smooth_start(place, name)
    with full_float32():
        expected = step_results(copy.deepcopy(method), batch)
        moved = [step_results(*perturbed(method, batch, torch.float32))]
    found = in_float32(place, name)
    failures, facts = summarize(compare(found, expected, moved, units=FLOAT32_UNITS))
    return judged(failures, facts)


def in_bfloat16(place: Place, name: str) -> Outcome:
    """Compare loss and gradient of a step under autocast with those in float32, on the device."""
    method, batch = smooth_start(place, name)
    expected = in_float32(place, name)
    with full_float32():
        changed = perturbed(method, batch, torch.bfloat16)
        moved = step_results(*moved_to(place.device, *changed))
        found = step_results(*moved_to(place.device, method, batch), low=True)
    found, expected, moved = (whole_gradient(one) for one in (found, expected, moved))
    differences = compare(found, expected, [moved], units=BFLOAT16_UNITS, dtype=torch.bfloat16)
    failures, facts = summarize(differences)
    return judged(failures, facts)


@lru_cache(maxsize=1)
def smooth_start(place: Place, name: str) -> tuple[Method, Batch]:
    """Return a smoke recipe's method with smooth activations, and its first batch, on the CPU."""
    on_cpu = Place(device=torch.device("cpu"), folder=place.folder)
    job = start_job(f"{name}/smoke", on_cpu, small_images(place), *SMALL_VIEWS)
    batches = job.feed.batches(0, 1)
    batch = next(batches)
    batches.close()
    return smooth(job.method).train(), batch


@lru_cache(maxsize=1)
def in_float32(place: Place, name: str) -> dict[str, Tensor]:
    """Return the results of a step in float32 on the device; both checks of a method need them."""
    with full_float32():
        return step_results(*moved_to(place.device, *smooth_start(place, name)))


def smooth(method: Method) -> Method:
    """Replace ReLU by SiLU and maximum by mean in all networks of a method, in place."""
    replacements: dict[type[nn.Module], Callable[[nn.Module], nn.Module]] = {
        nn.ReLU: lambda _: nn.SiLU(),
        nn.MaxPool2d: lambda _: nn.AvgPool2d(kernel_size=3, stride=2, padding=1),
    }
    for module in list(method.modules()):
        for name, child in list(module.named_children()):
            if type(child) in replacements:
                setattr(module, name, replacements[type(child)](child))
    return method


def step_results(method: Method, batch: Batch, *, low: bool = False) -> dict[str, Tensor]:
    """Return loss, gradients and, after the step, buffers and weights without gradient, by name.

    low: bfloat16 under autocast, as in training.
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
    """Return the loss () and all gradients as one vector (number of weights,)."""
    gradients = [rows.flatten() for name, rows in results.items() if name.startswith("gradient")]
    return {"loss": results["loss"], "gradient": torch.cat(gradients)}


def perturbed(method: Method, batch: Batch, dtype: torch.dtype) -> tuple[Method, Batch]:
    """Return copies of weights and views that are changed by one unit of rounding of the dtype."""
    generator = torch.Generator().manual_seed(1)
    method = copy.deepcopy(method)
    views = [view.clone() for view in batch.views]
    perturb([*method.parameters(), *views], dtype, generator)
    return method, batch._replace(views=views)


def moved_to(device: torch.device, method: Method, batch: Batch) -> tuple[Method, Batch]:
    """Return copies on a device, weights and views in channels_last as in training."""
    last = torch.channels_last
    views = [view.to(device).contiguous(memory_format=last) for view in batch.views]
    labels, indices = (
        None if rows is None else rows.to(device) for rows in (batch.labels, batch.indices)
    )
    method = copy.deepcopy(method).to(device).to(memory_format=last)
    return method, Batch(views, labels, indices)
