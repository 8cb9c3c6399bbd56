"""The JCL loss against its equation by other routes: Cai et al., arXiv:2009.14776."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from pretrain.methods.jcl import JCL, jcl_loss
from pretrain.parts.momentum_encoder import MomentumEncoder
from pretrain.recipes.jcl import JCLConfig
from tests.rounding import assert_equal_up_to_rounding


def problem(
    *, n: int = 6, num_keys: int = 5, size: int = 40, dim: int = 8
) -> tuple[Tensor, Tensor, Tensor]:
    """Query (n, d), keys (n, M, d) around it, queue (K, d), all of unit length."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(n, dim, generator=generator)
    keys = query[:, None] + 0.7 * torch.randn(n, num_keys, dim, generator=generator)
    queue = torch.randn(size, dim, generator=generator)
    return normalize(query, dim=1), normalize(keys, dim=2), normalize(queue, dim=1)


def simple_loss(
    query: Tensor, keys: Tensor, queue: Tensor, temperature: float, weight: float
) -> Tensor:
    """Equation 8 with the covariance and all logits in memory."""
    mean = keys.mean(dim=1)
    centered = keys - mean[:, None]
    covariance = centered.mT @ centered / keys.shape[1]
    attraction = (query * mean).sum(dim=1) / temperature
    spread = torch.einsum("nd,nde,ne->n", query, covariance, query) / temperature**2
    positive = attraction + weight / 2 * spread
    logits = torch.cat([positive[:, None], query @ queue.T / temperature], dim=1)
    return (logits.logsumexp(dim=1) - attraction).mean()


@pytest.mark.parametrize("weight", [0.0, 1.0, 4.0])
def test_loss_and_gradient_equal_those_with_an_explicit_covariance(weight: float) -> None:
    query, keys, queue = problem(size=10_000)  # more than two blocks of the streamed sum
    streamed, simple = query.clone().requires_grad_(), query.clone().requires_grad_()
    loss = jcl_loss(streamed, keys, queue, temperature=0.2, covariance_weight=weight)
    expected = simple_loss(simple, keys, queue, 0.2, weight)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss, expected)
    assert_equal_up_to_rounding(streamed.grad, simple.grad)


@pytest.mark.parametrize("num_keys", [1, 4])
def test_equal_keys_give_info_nce_at_any_covariance_weight(num_keys: int) -> None:
    query, keys, queue = problem()
    key = keys[:, :1]
    logits = torch.cat([(query[:, None] * key).sum(dim=2), query @ queue.T], dim=1) / 0.2
    expected = cross_entropy(logits, torch.zeros(len(query), dtype=torch.long))
    equal = key.expand(-1, num_keys, -1)
    loss = jcl_loss(query, equal, queue, temperature=0.2, covariance_weight=9.0)
    torch.testing.assert_close(loss, expected)


def tiny_jcl(**changes: object) -> JCL:
    """JCL on a linear backbone of 3x4x4 images."""
    torch.manual_seed(0)
    settings: dict[str, object] = {"num_keys": 3, "queue_size": 16, "embedding_dim": 8}
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(48, 12))
    return JCL(backbone, 12, JCLConfig(**(settings | changes)))  # type: ignore[arg-type]


def test_step_pushes_key_means_and_contrasts_with_the_queue_before_them() -> None:
    method = tiny_jcl()
    views = list(torch.randn(4, 5, 3, 4, 4))
    before = method.queue.keys.clone()
    with torch.no_grad():
        query = normalize(method.encoder(views[0]), dim=1)
        keys = torch.stack([normalize(method.key_encoder(v), dim=1) for v in views[1:]], dim=1)
    expected = jcl_loss(query, keys, before, temperature=0.2, covariance_weight=4.0)
    torch.testing.assert_close(method(views, 1.0)["loss"], expected)
    torch.testing.assert_close(method.queue.keys[:5], keys.mean(dim=1))
    assert torch.equal(method.queue.keys[5:], before[5:])


def test_a_linear_ramp_scales_the_covariance_weight_by_progress() -> None:
    views = list(torch.randn(4, 5, 3, 4, 4))
    ramped = tiny_jcl(covariance_ramp="linear", covariance_weight=8.0)(views, 0.25)
    constant = tiny_jcl(covariance_weight=2.0)(views, 0.25)
    assert torch.equal(ramped["loss"], constant["loss"])


def test_concatenated_keys_share_batch_statistics_and_single_views_do_not() -> None:
    means = {}
    views = [torch.randn(4, 3, 4, 4) + shift for shift in (0.0, 0.0, 5.0)]
    for choice in ("concatenated", "per_view"):
        method = tiny_jcl(num_keys=2, key_forward=choice)
        norm = nn.BatchNorm2d(3, momentum=1.0)
        method.key_encoder = MomentumEncoder(nn.Sequential(norm, method.encoder), 0.9)
        method.encoder = nn.Sequential(nn.BatchNorm2d(3), method.encoder)
        method(views, 1.0)
        inner = method.key_encoder.network
        assert isinstance(inner, nn.Sequential)
        means[choice] = inner[0].running_mean
    torch.testing.assert_close(means["concatenated"], torch.cat(views[1:]).mean(dim=(0, 2, 3)))
    torch.testing.assert_close(means["per_view"], views[2].mean(dim=(0, 2, 3)))


def test_the_queued_mean_may_have_unit_length() -> None:
    views = list(torch.randn(4, 5, 3, 4, 4))
    means = {}
    for unit_mean in (False, True):
        method = tiny_jcl(unit_mean=unit_mean)
        method(views, 1.0)
        means[unit_mean] = method.queue.keys[:5]
    torch.testing.assert_close(means[True], normalize(means[False], dim=1))
