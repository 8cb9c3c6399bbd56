"""Gradients of our autograd Functions on pretend CUDA tensors, with eight processes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pretrain.methods.lorac import nuclear_norm
from pretrain.parts.gather import gather_with_gradient
from pretrain.parts.queue import queue_divergence, queue_logsumexp
from pretrain.parts.whitening import whitened_trace
from tests.fake_cuda.pretend import CUDA, on_cuda, pretend_cuda, pretend_processes
from tests.fake_cuda.watch import Watch
from transfer.detection.detector import scale_gradient
from transfer.finetuning.norms import sum_over_processes

NUM_PROCESSES = 8
PAIRS = ((0, 1), (1, 0))


def queue() -> Tensor:
    return on_cuda(torch.ones(16, 8))


def trace(views: Tensor, *, groups: int = 1, detach: bool = False) -> Tensor:
    """Return the traces as their callers compute them, without autocast."""
    with torch.autocast("cuda", enabled=False):
        return whitened_trace(views.float(), PAIRS, ridge=0.1, groups=groups, detach=detach)[0]


Function = Callable[[Tensor], Tensor]
FUNCTIONS: dict[str, tuple[tuple[int, ...], Function]] = {
    "gathered rows": ((4, 8), gather_with_gradient),
    "transposed rows": ((4, 8), lambda rows: gather_with_gradient(rows.T)),
    "sum of norms": ((8,), sum_over_processes),
    "scaled gradient": ((4, 8), lambda rows: scale_gradient(rows, 0.1)),
    "nuclear norms of wide matrices": ((4, 3, 8), nuclear_norm),
    "nuclear norms of tall matrices": ((4, 9, 8), nuclear_norm),
    "nuclear norm of all rows": ((4, 8), lambda rows: nuclear_norm(rows[None], joint=True)),
    "log-sum-exp": ((4, 8), lambda rows: queue_logsumexp(rows, queue(), temperature=0.1)),
    "divergence": (
        (4, 8),
        lambda rows: queue_divergence(rows, rows.detach(), queue(), temperature=0.1),
    ),
    "trace by features": ((1, 2, 6, 8), trace),
    "trace by rows": ((1, 2, 3, 8), trace),
    "trace in groups": ((1, 2, 6, 8), lambda views: trace(views, groups=2)),
    "trace of a fixed covariance": ((1, 2, 3, 8), lambda views: trace(views, detach=True)),
}


def test_gradients_are_like_their_inputs_under_autocast(subtests: pytest.Subtests) -> None:
    for name in FUNCTIONS:
        for dtype in [torch.float32, torch.bfloat16]:
            with subtests.test(name=name, dtype=dtype):
                shape, function = FUNCTIONS[name]
                with pretend_processes(NUM_PROCESSES), pretend_cuda(), Watch() as watch:
                    rows = on_cuda(torch.ones(shape)).to(dtype).requires_grad_()
                    with torch.autocast("cuda", torch.bfloat16):
                        values = function(rows)
                    values.float().sum().backward()
                    assert rows.grad is not None
                    assert rows.grad.isfinite().shape == shape
                    assert (rows.grad.dtype, rows.grad.device) == (rows.dtype, rows.device)
                assert watch.faults == []


def test_mistakes_of_a_step_are_noticed() -> None:
    with pretend_cuda():
        rows = on_cuda(torch.ones(4, 8)).bfloat16()
        with Watch(true=True) as watch:
            assert (rows @ rows.T).float().logsumexp(dim=1).mean() > 0  # half precision, and a wait
            buffer = torch.ones(8).pin_memory()
            buffer.to(CUDA, non_blocking=True)
            buffer.fill_(2)
            with pytest.raises(RuntimeError, match="same device"):
                rows + torch.arange(8)
    product, write = watch.faults
    assert product.startswith("mm in torch.bfloat16")
    assert write.startswith("write to memory that a copy reads")
    assert [wait.kind for wait in watch.waits.elements()] == ["read of a number"]
