"""The vanilla multi-key average against its equation: Cai et al., arXiv:2009.14776, eq. 3."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from pretrain.methods.multi_key import MultiKey, multi_key_loss
from pretrain.recipes.moco import MultiKeyConfig
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


def simple_loss(query: Tensor, keys: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """One cross entropy over 1 + K logits per key."""
    target = torch.zeros(len(query), dtype=torch.long)
    losses = []
    for key in keys.unbind(dim=1):
        positive = (query * key).sum(dim=1, keepdim=True)
        logits = torch.cat([positive, query @ queue.T], dim=1) / temperature
        losses.append(cross_entropy(logits, target))
    return torch.stack(losses).mean()


def tiny_multi_key(num_keys: int = 3) -> MultiKey:
    """The vanilla average on a linear backbone of 3x4x4 images."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(48, 12))
    config = MultiKeyConfig(num_keys=num_keys, queue_size=16, embedding_dim=8)
    return MultiKey(backbone, 12, config)


def test_loss_and_gradient_are_the_average_over_keys() -> None:
    query, keys, queue = problem(size=10_000)  # more than two blocks of the streamed sum
    streamed, simple = query.clone().requires_grad_(), query.clone().requires_grad_()
    loss = multi_key_loss(streamed, keys, queue, temperature=0.2)
    expected = simple_loss(simple, keys, queue, 0.2)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss, expected)
    assert_equal_up_to_rounding(streamed.grad, simple.grad)


def test_step_contrasts_with_the_queue_before_it_and_pushes_the_first_keys() -> None:
    method = tiny_multi_key()
    views = list(torch.randn(4, 5, 3, 4, 4))
    before = method.queue.keys.clone()
    with torch.no_grad():
        query, *keys = [normalize(method.encoder(images), dim=1) for images in views]
    expected = simple_loss(query, torch.stack(keys, dim=1), before, 0.2)
    torch.testing.assert_close(method(views, 1.0)["loss"], expected)
    torch.testing.assert_close(method.queue.keys[:5], keys[0])
    assert torch.equal(method.queue.keys[5:], before[5:])
