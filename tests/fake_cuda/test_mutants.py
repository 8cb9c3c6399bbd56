"""Mistakes that would show on a GPU only, each made in a method and found without one."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pretrain.data.feed import Batch
from pretrain.method import Method
from pretrain.parts.gather import gather_with_gradient
from pretrain.parts.sync_bn import upload
from pretrain.parts.view import View
from tests.fake_cuda.budget import allowed_waits
from tests.fake_cuda.pretend import pretend_processes
from tests.fake_cuda.steps import Step, take_step_of
from tests.fake_cuda.watch import AUTOGRAD

Loss = Callable[[Tensor], Tensor]
"""A loss of embeddings (n, d)."""
LOOP = "pretrain/loop.py training_step"
"""Innermost place of the project, as the mutants lie in the tests."""


class OneLayer(Method):
    """A linear layer and a loss that may hold a mistake."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.views = (View(),)
        self.backbone = nn.Linear(12, 8)
        self.register_buffer("weights", torch.ones(8))
        self.loss = loss

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        embeddings = self.backbone(views[0].flatten(1)).float()
        return {"loss": self.loss(embeddings * self.weights)}


def step_with(loss: Loss, num_processes: int = 1) -> Step:
    with pretend_processes(num_processes):
        torch.manual_seed(0)
        return take_step_of(OneLayer(loss), Batch([torch.ones(4, 3, 2, 2)], None), "simclr")


def spread(embeddings: Tensor) -> Tensor:
    """A loss without any mistake."""
    order = upload(torch.randperm(len(embeddings)), embeddings.device)
    return gather_with_gradient(embeddings)[order].square().mean()


@pytest.mark.parametrize("num_processes", [1, 8])
def test_a_step_without_mistakes_has_no_fault(num_processes: int) -> None:
    step = step_with(spread, num_processes)
    assert step.metrics["loss"].dtype == torch.float32
    assert (step.watch.waits, step.watch.faults, step.without_gradient) == ({}, [], [])


def test_a_tensor_on_the_cpu_raises() -> None:
    with pytest.raises(RuntimeError, match=r"same device.*cuda:0.*cpu"):
        step_with(lambda rows: (rows + torch.arange(8)).sum())


def test_a_loss_in_half_precision_is_a_fault() -> None:
    product = step_with(lambda rows: (rows @ rows.T).float().logsumexp(dim=1).mean())
    assert product.watch.faults == [f"mm in torch.bfloat16 in {LOOP}"]
    slow = step_with(lambda rows: (rows.detach().double() @ rows.double().T).float().mean())
    assert slow.watch.faults == [f"mm in torch.float64 in {place}" for place in (LOOP, AUTOGRAD)]
    metric = step_with(lambda rows: rows.mean().bfloat16())
    assert metric.metrics["loss"].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("loss", "waits"),
    [
        (lambda rows: rows.mean() if rows.sum() > 0 else rows.sum(), {LOOP: 1}),
        (lambda rows: torch.linalg.cholesky(rows @ rows.T).mean(), {LOOP: 1}),
        # the index is used again for the gradient
        (lambda rows: rows[rows.detach()[:, 0] > 0].mean(), {LOOP: 1, AUTOGRAD: 1}),
    ],
    ids=["if", "cholesky", "mask"],
)
def test_a_wait_breaks_the_budget(loss: Loss, waits: dict[str, int]) -> None:
    found = step_with(loss).watch.waits
    assert found != allowed_waits("step of pre-training", "simclr")
    assert Counter(wait.place for wait in found.elements()) == waits


def test_a_pinned_buffer_that_is_used_again_is_a_fault() -> None:
    def reused(rows: Tensor) -> Tensor:
        buffer = torch.ones(8).pin_memory()
        first = buffer.to(rows.device, non_blocking=True)
        buffer.fill_(2)
        return (rows * (first + buffer.to(rows.device, non_blocking=True))).mean()

    assert step_with(reused).watch.faults == [f"write to memory that a copy reads in {LOOP}"]


def test_a_parameter_without_gradient_shows() -> None:
    missing = step_with(lambda rows: (rows.detach() + rows.new_zeros(1).requires_grad_()).sum())
    assert missing.without_gradient == ["backbone.weight", "backbone.bias"]
