"""The ring of keys; its losses against similarities in memory."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from pretrain.parts import queue as module
from pretrain.parts.queue import (
    KeyQueue,
    queue_divergence,
    queue_logsumexp,
    queue_logsumexp_and_largest,
)
from tests.rounding import SHORT_CHAIN, assert_equal_up_to_rounding


def test_pushes_wrap_when_the_batch_does_not_divide_the_queue() -> None:
    queue = KeyQueue(5, 1)
    for start in range(0, 12, 3):
        queue.push(torch.arange(start, start + 3.0)[:, None])
    # 12 keys in a ring of five: the last five, in the places they fell on
    assert queue.keys.flatten().tolist() == [10.0, 11.0, 7.0, 8.0, 9.0]
    assert queue.position.item() == 2


def logsumexp(query: Tensor, key: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
    """Return the streamed sum (n,) without a positive key."""
    return queue_logsumexp(query, queue, temperature=temperature)


def plain_logsumexp(query: Tensor, key: Tensor, queue: Tensor, temperature: float) -> Tensor:
    return (query @ queue.T / temperature).logsumexp(dim=1)


def plain_divergence(query: Tensor, key: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """Both distributions (n, K), with all similarities in memory."""
    log_q = (query @ queue.T / temperature).log_softmax(dim=1)
    log_p = (key @ queue.T / temperature).log_softmax(dim=1)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=1) / 2


PAIRS = {
    "logsumexp": (logsumexp, plain_logsumexp),
    "divergence": (queue_divergence, plain_divergence),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("block", [1, 7, 100, 4096])
def test_blocks_of_any_size_give_the_value_and_its_gradient(
    name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_KEYS", block)
    in_blocks, plain = PAIRS[name]
    query, key = normalize(torch.randn(2, 5, 8), dim=2)
    queue = normalize(torch.randn(101, 8), dim=1)
    streamed, simple = query.clone().requires_grad_(), query.clone().requires_grad_()
    result = in_blocks(streamed, key, queue, temperature=0.1)
    expected = plain(simple, key, queue, 0.1)
    weights = torch.arange(1.0, 6.0)
    (result * weights).sum().backward()
    (expected * weights).sum().backward()
    assert_equal_up_to_rounding(result, expected, magnitude=1 / 0.1, operations=SHORT_CHAIN)
    # similarities are rounded, over the temperature twice; the last row counts five times
    assert_equal_up_to_rounding(
        streamed.grad, simple.grad, magnitude=5 / 0.1**2, operations=SHORT_CHAIN
    )


def test_a_gpu_compares_as_many_keys_at_once_as_its_budget_of_logits_allows() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert module.block_keys(32, cpu) == module.block_keys(100_000, cuda) == module.BLOCK_KEYS
    assert module.block_keys(32, cuda) >= 65_536  # all of MoCo's queue
    for num_queries in (1, 100, 512, 4096):
        keys = module.block_keys(num_queries, cuda)
        assert keys * num_queries <= module.BLOCK_LOGITS < (keys + module.BLOCK_KEYS) * num_queries


@pytest.mark.parametrize("name", PAIRS)
def test_large_logits_do_not_overflow(name: str) -> None:
    query, key = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    result = PAIRS[name][0](query, key, torch.eye(2), temperature=1e-3)
    assert_equal_up_to_rounding(result, torch.tensor([1000.0]))


@pytest.mark.parametrize("block", [7, 4096])
def test_the_largest_similarity_comes_along_without_gradient(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_KEYS", block)
    query = torch.randn(5, 8, requires_grad=True)
    queue = torch.randn(50, 8)
    total, largest = queue_logsumexp_and_largest(query, queue, temperature=0.5)
    torch.testing.assert_close(largest, (query @ queue.T / 0.5).amax(dim=1).detach())
    assert total.requires_grad
    assert not largest.requires_grad
