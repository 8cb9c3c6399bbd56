"""NNCLR's loss against a loop over its equation: Dwibedi et al., arXiv:2104.14548."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pretrain.methods.nnclr import nearest_keys, neighbor_loss
from tests.rounding import assert_equal_up_to_rounding
from tests.tiny_methods import tiny_batch, tiny_method


def looped(neighbor: Tensor, prediction: Tensor) -> Tensor:
    """Return the mean over rows and columns, term by term.

    The temperature is 0.1.
    """
    powers = (neighbor @ prediction.T / 0.1).exp()
    rows = [-(powers[i, i] / powers[i].sum()).log() for i in range(len(powers))]
    columns = [-(powers[i, i] / powers[:, i].sum()).log() for i in range(len(powers))]
    return torch.stack(rows + columns).mean()


def test_loss_and_gradient_are_those_of_the_equation() -> None:
    generator = torch.Generator().manual_seed(0)
    neighbor, prediction = normalize(torch.randn(2, 5, 8, generator=generator), dim=2)
    simple, ours = prediction.clone().requires_grad_(), prediction.clone().requires_grad_()
    expected, loss = looped(neighbor, simple), neighbor_loss(neighbor, ours, temperature=0.1)
    expected.backward()
    loss.backward()
    assert_equal_up_to_rounding(loss, expected, magnitude=1 / 0.1)
    assert_equal_up_to_rounding(ours.grad, simple.grad, magnitude=1 / 0.1)


def test_the_positive_is_the_nearest_key() -> None:
    query, queue = normalize(torch.randn(4, 8), dim=1), normalize(torch.randn(30, 8), dim=1)
    for row, result in zip(query, nearest_keys(query, queue), strict=True):
        assert torch.equal(result, max(queue, key=lambda key: float(row @ key)))


def test_step_predicts_neighbors_of_the_other_view() -> None:
    method = tiny_method("nnclr")
    views, queue = tiny_batch(method).views, method.queue.keys.clone()
    with torch.no_grad():
        projections = [method.encoder(images) for images in views]
        first, second = (normalize(z, dim=1) for z in projections)
        p1, p2 = (normalize(method.predictor(z), dim=1) for z in projections)
        losses = [
            neighbor_loss(nearest_keys(z, queue), p, temperature=method.config.temperature)
            for z, p in ((first, p2), (second, p1))
        ]
    loss = method(views, 0.0)["loss"]
    torch.testing.assert_close(loss.detach(), (losses[0] + losses[1]) / 2)
    torch.testing.assert_close(method.queue.keys[: len(first)], first)
