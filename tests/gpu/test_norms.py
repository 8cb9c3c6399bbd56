"""Batch norms over several processes against plain batch norm over the whole batch in one.

The first test starts this module by torchrun; each process stores its share. The other needs one
GPU: it gives the kernels of pre-training two halves of a batch.
"""

import copy
import os
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from pretrain.parts import sync_bn
from pretrain.parts.sync_bn import FusedBatchNorm
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
    for name in list(expected)[:4]:  # rows of each process, then its terms of sums
        parts = [share[name] for share in shares]
        found = torch.cat(parts) if parts[0].ndim > 1 else torch.stack(parts).sum(dim=0)
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", ["NCHW", "channels last", "2-D"])
def test_fused_norm_of_two_halves(
    layout: str,
    dtype: torch.dtype,
    place: Place,
    findings: Findings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two halves of a batch, as if each had a process, against plain batch norm of the whole."""
    if place.device.type != "cuda":
        pytest.skip("a CPU has no such kernels; two processes compare its formula")
    monkeypatch.setattr(sync_bn, "num_processes", lambda: 2)
    draw = torch.Generator().manual_seed(13)
    shape = (2 * IMAGES_EACH, CHANNELS) if layout == "2-D" else (2 * IMAGES_EACH, CHANNELS, 5, 5)
    rows, goals = torch.randn(2, *shape, generator=draw)
    rows[IMAGES_EACH:] = 3 * rows[IMAGES_EACH:] + 2  # halves have other statistics
    if layout == "channels last":
        rows, goals = (part.contiguous(memory_format=torch.channels_last) for part in (rows, goals))
    rows, goals = rows.to(dtype), goals.to(dtype)
    plain = nn.BatchNorm1d if layout == "2-D" else nn.BatchNorm2d
    norm = plain(CHANNELS, eps=0.1, momentum=0.3).double()
    nn.init.uniform_(norm.weight, 0.5, 1.5, generator=draw)
    nn.init.uniform_(norm.bias, 0.5, 1.5, generator=draw)
    own = FusedBatchNorm(CHANNELS, eps=0.1, momentum=0.3)
    own.load_state_dict(norm.state_dict())
    inputs = rows.double().requires_grad_()
    outputs = norm(inputs)
    (outputs * goals.double()).sum().backward()
    found = of_halves(own.to(place.device), rows.to(place.device), goals.to(place.device))
    gradients = inputs.grad, norm.weight.grad, norm.bias.grad
    expected = outputs, *gradients, norm.running_mean, norm.running_var
    for (name, values), exact in zip(found.items(), expected, strict=True):
        assert exact is not None
        # float32 within; what has the type of the rows is rounded to it once at the end
        bound = roundings(values.dtype, 300 if values.dtype == torch.float32 else 1)
        findings.add(name, relative_difference(values, exact), bound)


def of_halves(norm: FusedBatchNorm, rows: Tensor, goals: Tensor) -> dict[str, Tensor]:
    """Return what two processes make of rows (n, C, ...) whose outputs have the gradient goals."""
    pairs = list(zip(rows.chunk(2), goals.chunk(2), strict=True))
    stacked = torch.stack([torch.cat(torch.batch_norm_stats(half, norm.eps)) for half, _ in pairs])
    sums: list[Tensor] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sync_bn, "gather", lambda _: stacked)
        patch.setattr(dist, "all_reduce", lambda own: sums.append(own.clone()))
        for half, goal in pairs:  # each process notes what it gives to the other
            step(norm, half, goal)
        patch.setattr(dist, "all_reduce", lambda own: own.copy_(sums[0] + sums[1]))
        first, second = (step(norm, half, goal) for half, goal in pairs)
    joined = {name: torch.cat([first[name], second[name]]) for name in list(first)[:2]}
    added = {name: first[name] + second[name] for name in list(first)[2:4]}
    return joined | added | {name: first[name] for name in list(first)[4:]}


def step(norm: nn.Module, rows: Tensor, goals: Tensor) -> dict[str, Tensor]:
    """Return what a process with a copy of the norm makes of its rows."""
    own, leaves = copy.deepcopy(norm).train(), rows.clone().requires_grad_()
    outputs = own(leaves)
    outputs.backward(goals)
    found = {
        "outputs": outputs.detach(),
        "input gradients": leaves.grad,
        "weight gradient": own.get_parameter("weight").grad,
        "bias gradient": own.get_parameter("bias").grad,
        "running mean": own.get_buffer("running_mean"),
        "running variance": own.get_buffer("running_var"),
    }
    return {name: values for name, values in found.items() if values is not None}


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
    return {
        name: values.cpu().contiguous() for name, values in step(norm, 3 * maps + 1, goals).items()
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
