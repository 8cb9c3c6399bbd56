import pytest
import torch
from torch.nn.functional import normalize

from pretrain.parts import queue as module
from pretrain.parts.queue import queue_logsumexp, queue_logsumexp_and_largest
from tests.rounding import assert_equal_up_to_rounding


@pytest.mark.parametrize("block", [1, 7, 100, 4096])
def test_blocks_of_any_size_give_the_logsumexp_and_its_gradient(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_KEYS", block)
    query = normalize(torch.randn(5, 8), dim=1)
    queue = normalize(torch.randn(101, 8), dim=1)
    streamed, simple = query.clone().requires_grad_(), query.clone().requires_grad_()
    result = queue_logsumexp(streamed, queue, temperature=0.07)
    expected = (simple @ queue.T / 0.07).logsumexp(dim=1)
    weights = torch.arange(1.0, 6.0)
    (result * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(result, expected)
    assert_equal_up_to_rounding(streamed.grad, simple.grad)


def test_a_gpu_compares_as_many_keys_at_once_as_its_budget_of_logits_allows() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert module.block_keys(32, cpu) == module.block_keys(100_000, cuda) == module.BLOCK_KEYS
    assert module.block_keys(32, cuda) >= 65_536  # all of MoCo's queue
    for num_queries in (1, 100, 512, 4096):
        keys = module.block_keys(num_queries, cuda)
        assert keys * num_queries <= module.BLOCK_LOGITS < (keys + module.BLOCK_KEYS) * num_queries


def test_large_logits_do_not_overflow() -> None:
    query = torch.ones(1, 1)
    result = queue_logsumexp(query, torch.tensor([[1.0], [0.5]]), temperature=1e-3)
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
