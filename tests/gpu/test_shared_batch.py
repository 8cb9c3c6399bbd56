"""Batch norm over several processes against one with the whole batch.

The test starts this module with torchrun; the first process writes the results.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pretrain.parts.gather import gather
from pretrain.parts.sync_bn import synchronize_batch_norms
from pretrain.running.processes import Process, process_group
from tests.gpu.findings import Findings, exact_float32
from tests.gpu.rounding import perturb
from tests.gpu.started import Workspace, launch

RESULTS = "shared_batch.pt"
IMAGES_EACH, DIM = 8, 16
"""Images per process, and features of a norm."""


def test_processes_that_share_a_batch(workspace: Workspace, findings: Findings) -> None:
    number = launch("tests.gpu.test_shared_batch", workspace.device, workspace.folder)
    together = torch.load(workspace.folder / RESULTS)
    expected = results(workspace.process, number)
    findings.compare(together, expected, [results(workspace.process, number, changed=True)])


def results(process: Process, num_shares: int, *, changed: bool = False) -> dict[str, Tensor]:
    """Return output, gradients and running statistics of the whole batch.

    They are equal on all processes.

    num_shares: the number of processes that are compared with one. changed: weights and images are
    changed by one unit of rounding.
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(num_shares * IMAGES_EACH, 3, 12, 12, generator=generator)
    torch.manual_seed(0)
    network = small_network()
    if changed:
        perturb([images, *network.parameters()], torch.float32, generator)
    ours = images.chunk(process.num_processes)[process.rank].to(process.device).requires_grad_()
    network = synchronize_batch_norms(network.to(process.device).train())
    with exact_float32():
        output = network(ours)
        # each image has its own gradient: the sum of normalized rows is constant
        output.pow(3).sum().backward()
    result = {"output": gather(output), "gradient of images": gather(gradient(ours))}
    for name, weight in network.named_parameters():
        result[f"gradient of {name}"] = summed(gradient(weight))
    result |= dict(network.named_buffers())
    return {name: values.detach().cpu() for name, values in result.items()}


def small_network() -> nn.Module:
    """Return two convolutions and a linear layer, each with batch norm.

    The network has no kinks.
    """
    return nn.Sequential(
        *(nn.Conv2d(3, 8, kernel_size=3, bias=False), nn.BatchNorm2d(8), nn.SiLU()),
        *(nn.Conv2d(8, DIM, kernel_size=3, stride=2, bias=False), nn.BatchNorm2d(DIM), nn.SiLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(DIM, DIM), nn.BatchNorm1d(DIM)),
    )


def gradient(tensor: Tensor) -> Tensor:
    """Return the gradient of a tensor, in its shape.

    Raises a ValueError if it has none.
    """
    if tensor.grad is None:
        raise ValueError(f"the backward pass has left out a tensor {tuple(tensor.shape)}")
    return tensor.grad


def summed(values: Tensor) -> Tensor:
    """Return the sum over processes, in the shape of the values."""
    values = values.contiguous()
    if dist.is_initialized():
        dist.all_reduce(values)
    return values


if __name__ == "__main__":
    with process_group(cuda=sys.argv[1] == "cuda") as joined:
        shared = results(joined, joined.num_processes)
        if joined.is_main:
            torch.save(shared, Path(sys.argv[2]) / RESULTS)
