"""The consistency loss against its equations by other routes: Wei et al., arXiv:2010.02217."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, normalize

from pretrain.methods.co2 import CO2, consistency_loss
from pretrain.methods.moco import MoCo
from pretrain.parts.losses import instance_discrimination
from pretrain.recipes.co2 import CO2Config
from pretrain.recipes.moco import MoCoConfig
from tests.rounding import SHORT_CHAIN, assert_equal_up_to_rounding

V1, V2 = 0.04, 0.05
"""Temperatures on MoCo v1 and v2."""


def problem(*, n: int = 6, size: int = 40, dim: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    """Query (n, d), key (n, d) near it, queue (K, d), all of unit length."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(n, dim, generator=generator)
    key = query + 0.3 * torch.randn(n, dim, generator=generator)
    queue = torch.randn(size, dim, generator=generator)
    return normalize(query, dim=1), normalize(key, dim=1), normalize(queue, dim=1)


def simple_loss(query: Tensor, key: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """Equation 4 by torch's divergence of two distributions in memory."""
    log_q = (query @ queue.T / temperature).log_softmax(dim=1)
    log_p = (key @ queue.T / temperature).log_softmax(dim=1)
    p_from_q = kl_div(log_q, log_p, reduction="batchmean", log_target=True)
    q_from_p = kl_div(log_p, log_q, reduction="batchmean", log_target=True)
    return p_from_q / 2 + q_from_p / 2


def gradient(query: Tensor, key: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """Return the gradient (n, d) of the streamed loss."""
    leaf = query.clone().requires_grad_()
    consistency_loss(leaf, key, queue, temperature=temperature).backward()
    assert leaf.grad is not None
    return leaf.grad


def tiny_co2(**changes: object) -> CO2:
    """CO2 on a linear backbone of 3x4x4 images."""
    torch.manual_seed(0)
    settings: dict[str, object] = {"queue_size": 16, "embedding_dim": 8}
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(48, 12))
    return CO2(backbone, 12, CO2Config(**(settings | changes)))  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [V1, V2, 0.2])
def test_loss_and_gradient_are_those_of_two_explicit_divergences(temperature: float) -> None:
    query, key, queue = problem(size=10_000)  # more than two blocks of the streamed sums
    simple = query.clone().requires_grad_()
    expected = simple_loss(simple, key, queue, temperature)
    expected.backward()
    assert simple.grad is not None
    loss = consistency_loss(query, key, queue, temperature=temperature)
    # similarities over the temperature are rounded on the way
    assert_equal_up_to_rounding(loss, expected, magnitude=1 / temperature, operations=SHORT_CHAIN)
    streamed = gradient(query, key, queue, temperature)
    assert_equal_up_to_rounding(
        streamed, simple.grad, magnitude=1 / temperature**2 / len(query), operations=SHORT_CHAIN
    )


def test_step_sums_both_losses_over_the_queue_before_it_and_pushes_the_key() -> None:
    method = tiny_co2(consistency_weight=10.0, consistency_temperature=V1, temperature=0.07)
    views = list(torch.randn(2, 5, 3, 4, 4))
    before = method.queue.keys.clone()
    with torch.no_grad():
        query, key = (normalize(method.encoder(images), dim=1) for images in views)
    discrimination = instance_discrimination(query, key, before, temperature=0.07)["loss"]
    consistency = simple_loss(query, key, before, V1)
    metrics = method(views, 1.0)
    assert_equal_up_to_rounding(metrics["loss"], discrimination + 10 * consistency)
    torch.testing.assert_close(metrics["instance_discrimination"], discrimination)
    assert_equal_up_to_rounding(metrics["consistency"], consistency)
    torch.testing.assert_close(method.queue.keys[:5], key)
    assert torch.equal(method.queue.keys[5:], before[5:])


def test_without_weight_it_takes_the_steps_of_moco_and_logs_the_same() -> None:
    method = tiny_co2(consistency_weight=0.0)
    config = MoCoConfig(queue_size=16, embedding_dim=8, consistency_temperature=V2)
    moco = MoCo(nn.Sequential(nn.Flatten(), nn.Linear(48, 12)), 12, config)
    moco.load_state_dict(method.state_dict())
    for _ in range(2):
        views = list(torch.randn(2, 5, 3, 4, 4))
        ours, theirs = method(views, 1.0), moco(views, 1.0)
        for name in ("loss", "consistency", "instance_accuracy"):
            torch.testing.assert_close(ours[name], theirs[name])
    torch.testing.assert_close(method.queue.keys, moco.queue.keys)
