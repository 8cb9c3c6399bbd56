"""NNCLR's loss against a loop over its equation: Dwibedi et al., arXiv:2104.14548."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pretrain.methods.nnclr import NNCLR, nearest_keys, neighbor_loss
from tests.rounding import assert_equal_up_to_rounding
from tests.tiny_methods import tiny_batch, tiny_method


def looped(neighbor: Tensor, prediction: Tensor, temperature: float) -> Tensor:
    """Return the mean over rows and columns, term by term."""
    terms = []
    for i in range(len(neighbor)):
        positive = (neighbor[i] @ prediction[i] / temperature).exp()
        row = sum((neighbor[i] @ other / temperature).exp() for other in prediction)
        column = sum((other @ prediction[i] / temperature).exp() for other in neighbor)
        terms += [-(positive / row).log(), -(positive / column).log()]
    return torch.stack(terms).mean()


def test_loss_and_gradient_are_those_of_the_equation() -> None:
    generator = torch.Generator().manual_seed(0)
    neighbor, prediction = normalize(torch.randn(2, 5, 8, generator=generator), dim=2)
    simple, own = prediction.clone().requires_grad_(), prediction.clone().requires_grad_()
    expected = looped(neighbor, simple, 0.1)
    loss = neighbor_loss(neighbor.requires_grad_(), own, temperature=0.1)
    expected.backward()
    loss.backward()
    assert_equal_up_to_rounding(loss, expected, magnitude=1 / 0.1)
    assert simple.grad is not None
    assert own.grad is not None
    assert_equal_up_to_rounding(own.grad, simple.grad, magnitude=1 / 0.1)


def test_the_positive_is_the_nearest_key_and_no_gradient_reaches_it() -> None:
    method: NNCLR = tiny_method("nnclr")
    batch = tiny_batch(method)
    query = normalize(torch.randn(4, 8), dim=1)
    queue = method.queue.keys.clone()
    for row, found in zip(query, nearest_keys(query, queue), strict=True):
        assert torch.equal(found, max(queue, key=lambda key: float(row @ key)))
    with torch.no_grad():
        first, second = (method.encoder(images) for images in batch.views)
    keys = normalize(first.float(), dim=1)
    metrics = method(batch.views, 0.0)
    changed = (method.queue.keys != queue).any(dim=1)
    assert torch.allclose(method.queue.keys[changed], keys, atol=1e-5)
    with torch.no_grad():
        p1, p2 = (normalize(method.predictor(z).float(), dim=1) for z in (first, second))
        n1, n2 = (nearest_keys(normalize(z.float(), dim=1), queue) for z in (first, second))
    expected = (
        neighbor_loss(n1, p2, temperature=method.config.temperature)
        + neighbor_loss(n2, p1, temperature=method.config.temperature)
    ) / 2
    torch.testing.assert_close(metrics["loss"].detach(), expected)
