"""Batch norm kernels over processes, given two halves of a batch.

They run on one GPU. Two processes compare the formulas of a CPU.
"""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from pretrain.parts import sync_bn
from pretrain.parts.sync_bn import FusedBatchNorm
from tests.gpu.findings import Findings, relative_difference, roundings

CHANNELS, IMAGES_EACH = 6, 4


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", ["NCHW", "channels last", "2-D"])
def test_fused_norm_of_two_halves(
    layout: str, dtype: torch.dtype, findings: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two halves of a batch match plain batch norm of the whole.

    Each half is computed as if it had its own process.
    """
    monkeypatch.setattr(sync_bn, "num_processes", lambda: 2)
    draw = torch.Generator().manual_seed(13)
    shape = (2 * IMAGES_EACH, CHANNELS) if layout == "2-D" else (2 * IMAGES_EACH, CHANNELS, 5, 5)
    rows, goals = torch.randn(2, *shape, generator=draw)
    rows[IMAGES_EACH:] = 3 * rows[IMAGES_EACH:] + 2  # halves have other statistics
    if layout == "channels last":
        rows, goals = (
            tensor.contiguous(memory_format=torch.channels_last) for tensor in (rows, goals)
        )
    rows, goals = rows.to(dtype), goals.to(dtype)
    plain = nn.BatchNorm1d if layout == "2-D" else nn.BatchNorm2d
    norm = plain(CHANNELS, eps=0.1, momentum=0.3).double()
    nn.init.uniform_(norm.weight, 0.5, 1.5, generator=draw)
    nn.init.uniform_(norm.bias, 0.5, 1.5, generator=draw)
    ours = FusedBatchNorm(CHANNELS, eps=0.1, momentum=0.3)
    ours.load_state_dict(norm.state_dict())
    inputs = rows.double().requires_grad_()
    outputs = norm(inputs)
    (outputs * goals.double()).sum().backward()
    result = of_halves(ours.to("cuda"), rows.to("cuda"), goals.to("cuda"))
    gradients = inputs.grad, norm.weight.grad, norm.bias.grad
    expected = outputs, *gradients, norm.running_mean, norm.running_var
    for (name, values), exact in zip(result.items(), expected, strict=True):
        assert exact is not None
        # computed in float32; results in the dtype of the rows are rounded once at the end, and so
        # are the terms of sums over NCHW, in torch's plain norm too
        rounded = dtype if layout == "NCHW" and "gradient" in name else values.dtype
        bound = roundings(rounded, 300 if rounded == torch.float32 else 1)
        findings.add(name, relative_difference(values, exact), bound)


def of_halves(norm: FusedBatchNorm, rows: Tensor, goals: Tensor) -> dict[str, Tensor]:
    """Return two processes' results for rows (n, C, ...).

    goals: the gradients of the outputs.
    """
    pairs = list(zip(rows.chunk(2), goals.chunk(2), strict=True))
    stacked = torch.stack([torch.cat(torch.batch_norm_stats(half, norm.eps)) for half, _ in pairs])
    sums: list[Tensor] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sync_bn, "gather", lambda _: stacked)
        patch.setattr(dist, "all_reduce", lambda ours, *_, **__: sums.append(ours.clone()))
        for half, goal in pairs:  # each process notes the tensors that it sends
            step(norm, half, goal)
        patch.setattr(dist, "all_reduce", lambda ours, *_, **__: ours.copy_(sums[0] + sums[1]))
        first, second = (step(norm, half, goal) for half, goal in pairs)
    joined = {name: torch.cat([first[name], second[name]]) for name in list(first)[:2]}
    added = {name: first[name] + second[name] for name in list(first)[2:4]}
    return joined | added | {name: first[name] for name in list(first)[4:]}


def step(norm: nn.Module, rows: Tensor, goals: Tensor) -> dict[str, Tensor]:
    """Return one process's results for rows, with a copied norm."""
    ours, leaves = copy.deepcopy(norm).train(), rows.clone().requires_grad_()
    outputs = ours(leaves)
    outputs.backward(goals)
    result = {
        "outputs": outputs.detach(),
        "input gradients": leaves.grad,
        "weight gradient": ours.get_parameter("weight").grad,
        "bias gradient": ours.get_parameter("bias").grad,
        "running mean": ours.get_buffer("running_mean"),
        "running variance": ours.get_buffer("running_var"),
    }
    return {name: values for name, values in result.items() if values is not None}
