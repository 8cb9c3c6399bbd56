"""Losses over a queue against their equations with all similarities in memory.

JCL and the average over keys: Cai et al., arXiv:2009.14776; CO2: Wei et al., arXiv:2010.02217;
ReSSL: Zheng et al., arXiv:2107.09282.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, kl_div, normalize

from pretrain.methods.co2 import consistency_loss
from pretrain.methods.jcl import JCL, jcl_loss, multi_key_loss
from pretrain.methods.ressl import relation_loss
from pretrain.parts.losses import instance_discrimination
from pretrain.parts.momentum_encoder import MomentumEncoder
from tests.rounding import SHORT_CHAIN, assert_equal_up_to_rounding
from tests.tiny_methods import tiny_batch, tiny_method

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def problem(size: int = 10_000) -> tuple[Tensor, Tensor, Tensor]:
    """Query (n, d), keys (n, M, d), queue (K, d).

    All rows have unit length. Keys are close to the query, and the queue has more than two blocks.
    """
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(6, 8, generator=generator)
    keys = query[:, None] + 0.7 * torch.randn(6, 5, 8, generator=generator)
    queue = torch.randn(size, 8, generator=generator)
    return normalize(query, dim=1), normalize(keys, dim=2), normalize(queue, dim=1)


def average_over_keys(query: Tensor, keys: Tensor, queue: Tensor) -> Tensor:
    """Equation 3 of JCL: cross-entropy over 1 + K logits per key."""
    positive = torch.einsum("nd,nmd->nm", query, keys)
    negative = (query @ queue.T)[:, None].expand(-1, keys.shape[1], -1)
    logits = torch.cat([positive[..., None], negative], dim=2).flatten(0, 1) / 0.2
    return cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))


def jcl_with_covariance(weight: float) -> Loss:
    """Equation 8 of JCL with an explicit covariance."""

    def loss(query: Tensor, keys: Tensor, queue: Tensor) -> Tensor:
        mean = keys.mean(dim=1)
        centered = keys - mean[:, None]
        covariance = centered.mT @ centered / keys.shape[1]
        attraction = (query * mean).sum(dim=1) / 0.2
        spread = torch.einsum("nd,nde,ne->n", query, covariance, query) / 0.2**2
        positive = attraction + weight / 2 * spread
        logits = torch.cat([positive[:, None], query @ queue.T / 0.2], dim=1)
        return (logits.logsumexp(dim=1) - attraction).mean()

    return loss


def divergence(temperature: float) -> Loss:
    """Equation 4 of CO2 with torch's KL divergence, for the first key."""

    def loss(query: Tensor, keys: Tensor, queue: Tensor) -> Tensor:
        log_q, log_p = (
            (rows @ queue.T / temperature).log_softmax(dim=1) for rows in (query, keys[:, 0])
        )
        forth = kl_div(log_q, log_p, log_target=True, reduction="batchmean")
        back = kl_div(log_p, log_q, log_target=True, reduction="batchmean")
        return (forth + back) / 2

    return loss


def relation(query: Tensor, keys: Tensor, queue: Tensor) -> Tensor:
    """ReSSL's cross-entropy of two softmaxes over the queue, for the first key."""
    target = (keys[:, 0] @ queue.T / 0.04).softmax(dim=1)
    return -(target * (query @ queue.T / 0.2).log_softmax(dim=1)).sum(dim=1).mean()


def jcl(weight: float) -> Loss:
    return partial(jcl_loss, temperature=0.2, covariance_weight=weight)


def co2(temperature: float) -> Loss:
    return lambda query, keys, queue: consistency_loss(
        query, keys[:, 0], queue, temperature=temperature
    )


def ressl(query: Tensor, keys: Tensor, queue: Tensor) -> Tensor:
    return relation_loss(query, keys[:, 0], queue, temperature=0.2, target_temperature=0.04)


LOSSES: dict[str, tuple[Loss, Loss, float]] = {
    "multi_key": (partial(multi_key_loss, temperature=0.2), average_over_keys, 0.2),
    **{f"jcl {w}": (jcl(w), jcl_with_covariance(w), 0.2) for w in (0.0, 1.0, 4.0)},
    **{f"co2 {t}": (co2(t), divergence(t), t) for t in (0.04, 0.05, 0.2)},
    "ressl": (ressl, relation, 0.04),
}
"""Name -> loss, its equation, and smallest temperature (for the rounding bound)."""


@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradient_are_those_of_the_equation(name: str) -> None:
    loss, equation, temperature = LOSSES[name]
    query, keys, queue = problem()
    streamed, simple = query.clone().requires_grad_(), query.clone().requires_grad_()
    result, expected = loss(streamed, keys, queue), equation(simple, keys, queue)
    result.backward()
    expected.backward()
    assert_equal_up_to_rounding(result, expected, magnitude=1 / temperature, operations=SHORT_CHAIN)
    assert_equal_up_to_rounding(
        streamed.grad,
        simple.grad,
        magnitude=1 / temperature**2 / len(query),
        operations=SHORT_CHAIN,
    )


STEPS: dict[str, Callable[[Tensor, Tensor, Tensor, Any], Tensor]] = {
    "moco": lambda q, k, queue, c: instance_discrimination(
        q, k[:, 0], queue, temperature=c.temperature
    )["loss"],
    "multi_key": lambda q, k, queue, c: multi_key_loss(q, k, queue, temperature=c.temperature),
    "jcl": lambda q, k, queue, c: jcl_loss(
        q, k, queue, temperature=c.temperature, covariance_weight=c.covariance_weight
    ),
    "co2": lambda q, k, queue, c: (
        instance_discrimination(q, k[:, 0], queue, temperature=c.temperature)["loss"]
        + c.consistency_weight * divergence(c.consistency_temperature)(q, k, queue)
    ),
    "ressl": lambda q, k, queue, c: relation_loss(
        *(q, k[:, 0], queue),
        temperature=c.temperature,
        target_temperature=c.target_temperature,
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_step_uses_the_queue_before_pushing_the_key(name: str) -> None:
    method = tiny_method(name, norm=nn.Identity)
    views, previous = tiny_batch(method).views, method.queue.keys.clone()
    with torch.no_grad():  # before the first step the key encoder is a copy
        query, *rows = (normalize(method.encoder(view), dim=1) for view in views)
    keys = torch.stack(rows, dim=1)
    loss = method(views, 1.0)["loss"]
    assert_equal_up_to_rounding(loss, STEPS[name](query, keys, previous, method.config))
    pushed = keys.mean(dim=1) if name == "jcl" else keys[:, 0]
    torch.testing.assert_close(method.queue.keys[: len(query)], pushed)
    assert torch.equal(method.queue.keys[len(query) :], previous[len(query) :])


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("jcl", {"num_keys": 1}),
        ("multi_key", {"num_keys": 1}),
        ("co2", {"consistency_weight": 0.0, "consistency_temperature": 0.05}),
    ],
)
def test_one_key_without_consistency_is_moco(name: str, changes: dict[str, Any]) -> None:
    same: dict[str, Any] = {"temperature": 0.2, "momentum": 0.9}
    moco = tiny_method("moco", norm=nn.Identity, consistency_temperature=0.05, **same)
    method = tiny_method(name, norm=nn.Identity, **same, **changes)
    method.load_state_dict(moco.state_dict())
    for _ in range(2):
        views = tiny_batch(moco).views
        ours, theirs = method(views, 1.0), moco(views, 1.0)
        for key in ours.keys() & theirs.keys():
            assert_equal_up_to_rounding(ours[key], theirs[key], magnitude=100)
    torch.testing.assert_close(moco.queue.keys, method.queue.keys)


def test_a_linear_ramp_scales_jcls_covariance_weight_by_progress() -> None:
    views = tiny_batch(tiny_method("jcl")).views
    ramped = tiny_method("jcl", covariance_ramp="linear", covariance_weight=8.0)(views, 0.25)
    constant = tiny_method("jcl", covariance_weight=2.0)(views, 0.25)
    assert torch.equal(ramped["loss"], constant["loss"])


def test_concatenated_keys_share_batch_statistics() -> None:
    views = [torch.randn(4, 3, 16, 16) + shift for shift in (0.0, 0.0, 5.0)]
    expected = {"concatenated": torch.cat(views[1:]), "per_view": views[2]}
    for choice, images in expected.items():
        method: JCL = tiny_method("jcl", num_keys=2, key_forward=choice, bn_splits=1)
        norm = nn.BatchNorm2d(3, momentum=1.0)
        method.key_encoder = MomentumEncoder(nn.Sequential(norm, method.encoder), 0.9)
        method.encoder = nn.Sequential(nn.BatchNorm2d(3), method.encoder)
        method(views, 1.0)
        mean = method.key_encoder.network.get_buffer("0.running_mean")
        torch.testing.assert_close(mean, images.mean(dim=(0, 2, 3)))


def test_the_queued_mean_may_have_unit_length() -> None:
    plain, unit = (
        tiny_method("jcl", norm=nn.Identity, unit_mean=choice) for choice in (False, True)
    )
    for method in (plain, unit):
        method(tiny_batch(method).views, 1.0)
    torch.testing.assert_close(unit.queue.keys[:8], normalize(plain.queue.keys[:8], dim=1))


def test_the_teacher_of_ressl_sees_a_weak_view() -> None:
    query, key = tiny_method("ressl").views
    assert (query.without, set(key.without)) == ((), {"color", "blur", "solarize"})


def test_logged_cosine_of_ressl_is_that_of_its_views() -> None:
    method = tiny_method("ressl")
    views = tiny_batch(method).views
    previous = copy.deepcopy(method)  # its teacher moves at each step
    torch.manual_seed(1)  # of the groups of shuffled batch norm
    splits = previous.config.bn_splits
    query, keys = previous.teacher.query_and_keys(previous.encoder, views, splits)
    expected = cosine_similarity(query, keys[:, 0]).mean()
    torch.manual_seed(1)
    torch.testing.assert_close(method(views, 1.0)["view_cosine"], expected.detach())
