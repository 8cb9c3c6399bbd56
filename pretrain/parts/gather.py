"""Rows, sums and maxima over all processes.

Gathered rows are ordered by rank; the rows of each process keep their order.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def num_processes() -> int:
    """Return the number of processes of this run; 1 without torch.distributed."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def own_share(rows: Tensor) -> Tensor:
    """Return this process's chunk (n, ...) of shared rows (N, ...)."""
    if num_processes() == 1:
        return rows
    return rows.chunk(num_processes())[dist.get_rank()]


@torch.no_grad()
def gather(rows: Tensor) -> Tensor:
    """Return rows (N, ...) of all processes, n from each, without gradient."""
    if num_processes() == 1:
        return rows.detach()
    gathered = rows.new_empty((num_processes() * len(rows), *rows.shape[1:]))
    # torch.compile of torch 2.6 needs the group
    dist.all_gather_into_tensor(gathered, rows.detach().contiguous(), group=dist.group.WORLD)
    return gathered


def gather_with_gradient(rows: Tensor) -> Tensor:
    """Return rows (N, ...) of all processes, n from each, with gradient.

    The gradient of a row is summed over processes. So if every process computes the same loss over
    all N rows, and DistributedDataParallel averages the parameters' gradients, these are exactly
    the gradients of a single process with all rows.
    """
    if num_processes() == 1:
        return rows
    gathered: Tensor = _Gather.apply(rows)
    return gathered


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        ctx.num_rows = len(rows)
        gathered = gather(rows)
        # torch.compile of torch 2.11 loses the gradient of a result that was written in place
        return gathered.clone() if torch.compiler.is_compiling() else gathered

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        gradient = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(gradient, group=dist.group.WORLD)
        start = dist.get_rank() * ctx.num_rows
        return gradient[start : start + ctx.num_rows]


def max_over_processes(values: Tensor) -> Tensor:
    """Return the elementwise maximum over all processes, without gradient."""
    if num_processes() == 1:
        return values
    largest = values.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest


def sum_over_processes(values: Tensor) -> Tensor:
    """Return the elementwise sum over all processes, without gradient."""
    if num_processes() == 1:
        return values
    total = values.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total
