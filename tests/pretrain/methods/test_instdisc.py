"""Instance discrimination against its equations: Wu et al., arXiv:1805.01978."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.methods.instdisc import nce_loss, softmax_loss
from tests.rounding import assert_equal_up_to_rounding
from tests.tiny_methods import tiny_method

NUM_IMAGES = 50


def problem(*, n: int = 6, m: int = 10, dim: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    """Query (n, d), its bank rows (n, d), noise (n, m, d).

    All have unit length. The bank rows are close to the query.
    """
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(n, dim, generator=generator)
    ours = query + 0.7 * torch.randn(n, dim, generator=generator)
    noise = torch.randn(n, m, dim, generator=generator)
    return normalize(query, dim=1), normalize(ours, dim=1), normalize(noise, dim=2)


def slow_loss(
    query: Tensor, ours: Tensor, noise: Tensor, temperature: float, partition: float
) -> Tensor:
    """Eq. 4, 6 and 7 as printed."""
    m = noise.shape[1]

    def h(row: Tensor, embedding: Tensor) -> Tensor:
        share = (row @ embedding / temperature).exp() / partition
        return share / (share + m / NUM_IMAGES)

    losses = []
    for i in range(len(query)):
        losses.append(-h(ours[i], query[i]).log())
        losses += [-(1 - h(row, query[i])).log() for row in noise[i]]
    return torch.stack(losses).sum() / len(query)


def tiny_instdisc(**changes: Any) -> Any:
    settings = {"num_images": NUM_IMAGES, "num_negatives": 10, "temperature": 0.07, **changes}
    return tiny_method("instdisc", norm=nn.Identity, **settings)


def batch() -> tuple[list[Tensor], Tensor]:
    """One view of five images, and their indices."""
    return [torch.randn(5, 3, 8, 8)], torch.tensor([3, 49, 0, 17, 8])


@pytest.mark.parametrize("temperature", [0.07, 0.5])
def test_loss_and_gradient_follow_the_printed_probabilities(temperature: float) -> None:
    query, actual, noise = (rows.double() for rows in problem())
    result, expected = query.clone().requires_grad_(), query.clone().requires_grad_()
    partition = NUM_IMAGES * math.exp(1 / temperature / 4)
    loss, _ = nce_loss(
        result,
        actual,
        noise,
        temperature=temperature,
        log_partition=torch.tensor(partition, dtype=torch.float64).log(),
        num_images=NUM_IMAGES,
    )
    slow = slow_loss(expected, actual, noise, temperature, partition)
    torch.testing.assert_close(loss, slow)
    ours, theirs = (
        torch.autograd.grad(value, rows)[0] for value, rows in ((loss, result), (slow, expected))
    )
    torch.testing.assert_close(ours, theirs)


def test_estimated_partition_is_that_of_eq_8() -> None:
    query, actual, noise = (rows.double() for rows in problem())
    loss, log_partition = nce_loss(
        query,
        actual,
        noise,
        temperature=0.2,
        log_partition=torch.tensor(math.inf),
        num_images=NUM_IMAGES,
    )
    powers = [math.exp(row @ query[i] / 0.2) for i in range(6) for row in noise[i]]
    partition = NUM_IMAGES / len(powers) * sum(powers)
    assert log_partition.item() == pytest.approx(math.log(partition), rel=1e-6)
    slow = slow_loss(query, actual, noise, 0.2, log_partition.exp().item())
    torch.testing.assert_close(loss, slow)


def test_the_full_softmax_is_that_of_the_printed_equation() -> None:
    generator = torch.Generator().manual_seed(0)
    bank = normalize(torch.randn(NUM_IMAGES, 8, generator=generator), dim=1).requires_grad_()
    query, indices = problem()[0], torch.arange(6) * 7
    loss = softmax_loss(query, bank, indices, temperature=0.2)
    powers = (query @ bank.detach().T / 0.2).exp()
    shares = [float(powers[k, i] / powers[k].sum()) for k, i in enumerate(indices)]
    assert_equal_up_to_rounding(loss, -sum(map(math.log, shares)) / 6, magnitude=1 / 0.2)
    assert not loss.requires_grad  # the bank gets no gradient


def test_loss_without_negatives_is_the_full_softmax() -> None:
    (views, indices), sampled, full = batch(), tiny_instdisc(), tiny_instdisc(num_negatives=0)
    query = normalize(full.encoder(views[0]), dim=1)
    expected = softmax_loss(query, full.bank.clone(), indices, temperature=0.07)
    result = full(views, 0.0, indices)["loss"]
    torch.testing.assert_close(result, expected)
    result.backward()
    sampled(views, 0.0, indices)
    for method in (full, sampled):
        method.after_step(0.0)
    torch.testing.assert_close(full.bank, sampled.bank)
    assert full.log_partition.isinf()


def test_the_partition_is_estimated_by_the_first_batch_and_stays() -> None:
    method = tiny_instdisc()
    assert method.log_partition.isinf()
    views, indices = batch()
    method(views, 0.1, indices)
    first = method.log_partition.clone()
    # 8 random directions at temperature 0.07 are far from a mean of one
    assert math.log(NUM_IMAGES) < first.item() < math.log(NUM_IMAGES) + 1 / 0.07
    method(views, 0.2, indices)
    assert torch.equal(method.log_partition, first)


def test_step_uses_the_bank_before_updating_it() -> None:
    method, (views, indices) = tiny_instdisc(), batch()
    previous = method.bank.clone()
    with torch.no_grad():
        query = normalize(method.encoder(views[0]), dim=1)
    torch.manual_seed(7)
    noise = previous[torch.randint(NUM_IMAGES, (5, 10))]
    torch.manual_seed(7)
    loss = method(views, 0.5, indices)["loss"]
    expected = slow_loss(query, previous[indices], noise, 0.07, method.log_partition.exp().item())
    # logarithms of shares are differences of similarities over the temperature
    assert_equal_up_to_rounding(loss, expected, magnitude=10 / 0.07)
    assert torch.equal(method.bank, previous)
    method.after_step(0.5)
    previous[indices] = normalize((previous[indices] + query) / 2, dim=1)
    torch.testing.assert_close(method.bank, previous)


def test_the_proximal_term_is_the_squared_distance_to_the_row_before_the_step() -> None:
    views, indices = batch()
    plain, pulled = tiny_instdisc(proximal_weight=0.0), tiny_instdisc(proximal_weight=30.0)
    with torch.no_grad():
        query = normalize(pulled.encoder(views[0]), dim=1)
    expected = 30 * (query - pulled.bank[indices]).square().sum(dim=1).mean()
    losses = []
    for method in (plain, pulled):
        torch.manual_seed(3)
        losses.append(method(views, 0.5, indices)["loss"])
    assert_equal_up_to_rounding(losses[1] - losses[0], expected, magnitude=losses[1].item())
