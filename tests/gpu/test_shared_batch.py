"""Batches that several processes share against one process with the whole batch.

The test starts this module by torchrun; the first process writes all results.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.launch import join_processes
from pretrain.parts.gather import gather, gather_with_gradient
from pretrain.parts.sync_bn import shuffled_forward, synchronize_batch_norms
from pretrain.running.processes import Process
from tests.gpu.findings import Findings, exact_float32
from tests.gpu.rounding import perturb
from tests.gpu.started import Place, launch

SHARED = ("synchronized batch norm", "gathered rows", "shuffled batch norm")
"""Computations that processes share."""
RESULTS = "shared_batch.pt"

IMAGES_PER_GROUP, DIM = 8, 16
"""Images of each of several processes, and entries of an embedding."""


def test_processes_that_share_a_batch(place: Place, findings: Findings) -> None:
    number = launch("tests.gpu.test_shared_batch", place.device, place.folder)
    together = torch.load(place.folder / RESULTS)
    for part in SHARED:
        expected = results(part, place.device, 1, 0, groups=number)
        moved = results(part, place.device, 1, 0, groups=number, changed=True)
        findings.compare(together[part], expected, [moved])


def results(
    part: str,
    device: torch.device,
    num_processes: int,
    rank: int,
    *,
    groups: int,
    changed: bool = False,
) -> dict[str, Tensor]:
    """Return the results of a part for the whole batch, on the CPU; equal on all processes.

    groups: the number of processes that are compared with one. changed: weights and images are
    changed by one unit of rounding.
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(groups * IMAGES_PER_GROUP, 3, 12, 12, generator=generator)
    torch.manual_seed(0)
    network = small_network()
    if changed:
        perturb([images, *network.parameters()], torch.float32, generator)
    own = images.chunk(num_processes)[rank].to(device).requires_grad_()
    network = network.to(device).train()
    with exact_float32():
        match part:
            case "synchronized batch norm":
                found = synchronized(network, own)
            case "gathered rows":
                found = gathered(network, own, num_processes)
            case _:
                found = shuffled(network, own, groups // num_processes)
    return {name: values.detach().cpu() for name, values in found.items()}


def small_network() -> nn.Module:
    """Return two convolutions with batch norm and a layer with batch norm, without kinks."""
    return nn.Sequential(
        *(nn.Conv2d(3, 8, kernel_size=3, bias=False), nn.BatchNorm2d(8), nn.SiLU()),
        *(nn.Conv2d(8, DIM, kernel_size=3, stride=2, bias=False), nn.BatchNorm2d(DIM), nn.SiLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(DIM, DIM), nn.BatchNorm1d(DIM)),
    )


def synchronized(network: nn.Module, own: Tensor) -> dict[str, Tensor]:
    """Return output, gradients and running statistics with batch norm over all processes.

    own: images (n, 3, H, W) of this process.
    """
    network = synchronize_batch_norms(network)
    output = network(own)
    # each image has its own gradient: the sum of normalized rows is constant
    output.pow(3).sum().backward()
    found = {"output": gather(output), "gradient of images": gather(gradient(own))}
    for name, weight in network.named_parameters():
        found[f"gradient of {name}"] = summed(gradient(weight))
    return found | dict(network.named_buffers())


def gathered(network: nn.Module, own: Tensor, num_processes: int) -> dict[str, Tensor]:
    """Return a loss over all pairs of rows, and its gradient to the images (n, 3, H, W).

    Batch norm is left out: a row depends on its image alone.
    """
    network = network.eval()
    rows = gather_with_gradient(normalize(network(own), dim=1))
    loss = (rows @ rows.T / 0.1).logsumexp(dim=1).mean()
    loss.backward()
    # each of the processes computes the whole loss, and gradients are summed over them
    return {"loss": loss, "gradient of images": gather(gradient(own)) / num_processes}


def shuffled(network: nn.Module, own: Tensor, num_splits: int) -> dict[str, Tensor]:
    """Return embeddings (N, d) of shuffled groups, each with its own batch norm."""
    torch.manual_seed(1)
    return {"embeddings": gather(shuffled_forward(network, own.detach(), num_splits))}


def gradient(tensor: Tensor) -> Tensor:
    """Return the gradient of a tensor, in its shape; ValueError if it has none."""
    if tensor.grad is None:
        raise ValueError(f"the backward pass has left out a tensor {tuple(tensor.shape)}")
    return tensor.grad


def summed(values: Tensor) -> Tensor:
    """Return the sum over processes, in the shape of the values."""
    values = values.contiguous()
    if dist.is_initialized():
        dist.all_reduce(values)
    return values


def write_results(process: Process, folder: Path) -> None:
    """Compute all parts together with the other processes; the first writes them."""
    number = process.num_processes
    found = {
        part: results(part, process.device, number, process.rank, groups=number) for part in SHARED
    }
    if process.is_main:
        torch.save(found, folder / RESULTS)


if __name__ == "__main__":
    with join_processes("cuda" if sys.argv[1] == "cuda" else "cpu") as joined:
        write_results(joined, Path(sys.argv[2]))
