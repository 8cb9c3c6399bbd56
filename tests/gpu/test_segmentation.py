"""The segmentation network on the device against the CPU."""

import torch
from torch import Tensor

from benchmarks.gpu.evaluation import fixed_crops, new_fcn
from tests.gpu.findings import (
    Findings,
    one_pass,
    relative_difference,
    roundings,
    worst_relative_difference,
)
from tests.gpu.started import Workspace
from tests.transfer.detection.fixed_detector import fill, settle_at_once
from transfer.finetuning.loop import move_to_device
from transfer.finetuning.schedule import Precision

SMALL_BATCH = 4
"""Factor by which batch norm over two small images amplifies roundings."""
LOW_PRECISION: dict[Precision, float] = {"bfloat16": 0.05, "float16": 0.01}
"""Relative difference of the loss from float32.

The loss is a mean over all pixels of a logarithm of probabilities. 55 layers round twice each, by
half an eps at most. For logits of about one, sqrt(110) * eps / 2 is 0.04 in bfloat16, and an eighth
of it in float16.
"""


def test_the_network(workspace: Workspace, findings: Findings) -> None:
    """Loss, gradients and logits on the device equal the CPU's.

    In float64 and float32. Any fault in float64 is larger than 1e-9, and roundings are much
    smaller.
    """
    expected = fixed_answer(torch.device("cpu"), torch.float64)
    for name, dtype, bound in (
        ("float64", torch.float64, 1e-9),
        ("float32", torch.float32, roundings(torch.float32) * SMALL_BATCH),
    ):
        loss, gradients, logits = fixed_answer(workspace.device, dtype)
        findings.add(f"{name} loss", relative_difference(loss, expected[0]), bound)
        findings.add(f"{name} logits", relative_difference(logits, expected[2]), bound)
        if dtype == torch.float64:  # in float32 a unit near zero may be on or off
            worst = worst_relative_difference(gradients, expected[1])
            findings.add(f"{name} gradients", worst, bound)


def test_the_network_in_low_precision(workspace: Workspace, findings: Findings) -> None:
    """The first loss under autocast is close to float32; gradients are finite."""
    expected = first_pass(torch.device("cpu"), "float32")
    for precision, bound in LOW_PRECISION.items():
        if precision == "float16" and not workspace.on_gpu:
            continue  # trainings on a CPU refuse it
        result = first_pass(workspace.device, precision)
        findings.add(f"{precision} loss", abs(result[0] / expected[0] - 1), bound)
        findings.require(f"{precision} gradients", result[1], "not finite")


def fixed_answer(
    device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Return loss, gradients and eval-mode logits, from fixed weights and samples."""
    network = new_fcn("resnet18", px=65, head_channels=32)
    fill(network.state_dict())
    network.to(dtype)
    move_to_device(network, device)
    settle_at_once(network)
    samples = [sample.to(device) for sample in fixed_crops(2, 65)]
    loss = network.train()(samples)["loss_seg"]
    loss.backward()
    gradients = {
        name: values.grad for name, values in network.named_parameters() if values.grad is not None
    }
    with torch.no_grad():
        images = torch.stack([sample.image for sample in samples])
        logits = network.eval().logits((images - network.mean) / network.std)
    return loss.detach(), gradients, logits


def first_pass(device: torch.device, precision: Precision) -> tuple[float, bool]:
    """Return the first loss, and whether the gradients are finite."""
    network = new_fcn("resnet18", px=65, head_channels=32)
    move_to_device(network, device)
    samples = [sample.to(device) for sample in fixed_crops(2, 65)]
    return one_pass(network.train(), samples, device, precision)
