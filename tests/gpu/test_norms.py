"""Batch norms over several processes against plain batch norm over the whole batch in one.

The test starts this module by torchrun; each process stores its share.
"""

import os
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from pretrain.running.atomic_files import load_stage, save_stage
from pretrain.running.processes import process_group
from tests.gpu.findings import Findings, relative_difference, roundings
from tests.gpu.started import Place, launch
from transfer.finetuning.norms import NaiveSyncBatchNorm

CHANNELS, IMAGES_EACH, SIDE = 6, 4, 5
KINDS = {"SyncBN": nn.SyncBatchNorm, "naiveSyncBN": NaiveSyncBatchNorm}


def test_norms_over_processes(place: Place, findings: Findings) -> None:
    count = launch("tests.gpu.test_norms", place.device, place.folder)
    for kind in kinds_on(place.device.type):
        shares = [load_stage(place.folder / f"{kind}-{rank}.stage") for rank in range(count)]
        compare(kind, [share for share in shares if share is not None], findings)


def compare(kind: str, shares: list[dict[str, Tensor]], findings: Findings) -> None:
    """Compare the shares of all processes with one process; float64, up to sums in other order.

    A share: outputs and input gradients (n, C, H, W), gradients of weight and bias (C,).
    """
    expected = compute(nn.BatchNorm2d(CHANNELS).double(), range(len(shares)), torch.device("cpu"))
    # sums over all values, then a difference of their squares
    bound = roundings(torch.float64, operations=300)
    for name in ("outputs", "input gradients"):
        found = torch.cat([share[name] for share in shares])
        findings.add(f"{kind}: {name}", relative_difference(found, expected[name]), bound)
    for name in ("weight gradient", "bias gradient"):
        found = torch.stack([share[name] for share in shares]).sum(dim=0)
        findings.add(f"{kind}: {name}", relative_difference(found, expected[name]), bound)
    values = len(shares) * IMAGES_EACH * SIDE**2
    # the naive norm's running variance is biased
    factor = (values - 1) / values if kind == "naiveSyncBN" else 1.0
    momentum = 0.1
    variance = 1 - momentum + factor * (expected["running variance"] - (1 - momentum))
    for rank, share in enumerate(shares):
        mean = relative_difference(share["running mean"], expected["running mean"])
        findings.add(f"{kind}: running mean of process {rank}", mean, bound)
        apart = relative_difference(share["running variance"], variance)
        findings.add(f"{kind}: running variance of process {rank}", apart, bound)


def kinds_on(device: str) -> list[str]:
    """Return the norms that a device has: torch's own synchronized one runs on GPUs only."""
    return [kind for kind in KINDS if kind != "SyncBN" or device == "cuda"]


def compute(norm: nn.Module, parts: range, device: torch.device) -> dict[str, Tensor]:
    """Return what a norm makes of these parts of the batch, with gradients, on the CPU."""
    generator = torch.Generator().manual_seed(13)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=generator) + 0.5)
    drawn = [
        torch.randn(2, IMAGES_EACH, CHANNELS, SIDE, SIDE, generator=generator).double()
        for _ in range(parts.stop)
    ]
    maps, goals = torch.cat([drawn[part] for part in parts], dim=1).to(device)
    maps = (3 * maps + 1).requires_grad_()
    outputs = norm.train()(maps)
    (outputs * goals).sum().backward()
    weight, bias = norm.get_parameter("weight"), norm.get_parameter("bias")
    tensors = {
        "outputs": outputs,
        "input gradients": maps.grad,
        "weight gradient": weight.grad,
        "bias gradient": bias.grad,
        "running mean": norm.get_buffer("running_mean"),
        "running variance": norm.get_buffer("running_var"),
    }
    return {
        name: values.detach().cpu().contiguous()
        for name, values in tensors.items()
        if values is not None
    }


def main(device: str, folder: Path) -> None:
    """Compute and store the shares of this process."""
    with process_group() as process:
        for kind in kinds_on(device):
            norm = KINDS[kind](CHANNELS).double().to(process.device)
            parts = range(process.rank, process.rank + 1)
            share = compute(norm, parts, process.device)
            save_stage(folder / f"{kind}-{process.rank}.stage", share)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
    # torch 2.15 may keep threads of gloo that abort the interpreter's end
    sys.stderr.flush()
    os._exit(0)
