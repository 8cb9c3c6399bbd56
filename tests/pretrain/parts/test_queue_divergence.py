import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from pretrain.parts import queue as module
from pretrain.parts.queue import queue_divergence
from tests.rounding import SHORT_CHAIN, assert_equal_up_to_rounding, rounding_error


def plain_divergence(query: Tensor, key: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """Both distributions (n, K) in memory."""
    log_q = (query @ queue.T / temperature).log_softmax(dim=1)
    log_p = (key @ queue.T / temperature).log_softmax(dim=1)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=1) / 2


@pytest.mark.parametrize("block", [1, 7, 100, 4096])
def test_blocks_of_any_size_give_the_divergence_and_its_gradient(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_KEYS", block)
    torch.manual_seed(0)
    query, key = normalize(torch.randn(2, 5, 8), dim=2)
    queue = normalize(torch.randn(101, 8), dim=1)
    streamed, simple = query.clone().requires_grad_(), query.clone().requires_grad_()
    result = queue_divergence(streamed, key, queue, temperature=0.1)
    expected = plain_divergence(simple, key, queue, 0.1)
    weights = torch.arange(1.0, 6.0)
    (result * weights).sum().backward()
    (expected * weights).sum().backward()
    assert_equal_up_to_rounding(result, expected, magnitude=1 / 0.1, operations=SHORT_CHAIN)
    # similarities are rounded, over the temperature twice; the last row counts five times
    assert_equal_up_to_rounding(
        streamed.grad, simple.grad, magnitude=5 / 0.1**2, operations=SHORT_CHAIN
    )


def test_small_differences_are_not_lost_to_rounding() -> None:
    torch.manual_seed(0)
    query, queue = torch.randn(4, 8).double(), torch.randn(50, 8).double()
    key = query + 1e-3 * torch.randn(4, 8)
    logit, gap = (query @ queue.T / 0.5).abs().max(), (query - key).norm(dim=1).max() / 0.5
    result = queue_divergence(query.float(), key.float(), queue.float(), temperature=0.5)
    expected = plain_divergence(query.float().double(), key.float().double(), queue, 0.5)
    # both mean negatives have the rounding of logits, but count only times the gap
    error = rounding_error(torch.float32, magnitude=(gap * logit).item(), operations=SHORT_CHAIN)
    assert (result - expected).abs().max() < error < 0.02 * expected.max()


def test_large_logits_do_not_overflow() -> None:
    query, key = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    result = queue_divergence(query, key, torch.eye(2), temperature=1e-3)
    assert_equal_up_to_rounding(result, torch.tensor([1000.0]))
