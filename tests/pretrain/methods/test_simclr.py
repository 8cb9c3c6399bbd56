"""NT-Xent against its equation by other routes: Chen et al., arXiv:2002.05709."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize

from pretrain.methods.simclr import SimCLR, nt_xent_loss
from pretrain.parts.view import View
from pretrain.recipes.simclr import SimCLRConfig


def problem(*, n: int = 6, dim: int = 8) -> tuple[Tensor, Tensor]:
    """z1, z2 (n, d) of two similar views, of any length."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(n, dim, generator=generator)
    second = 2 * first + torch.randn(n, dim, generator=generator)
    return first, second


def slow_loss(z1: Tensor, z2: Tensor, temperature: float) -> Tensor:
    """Eq. 1 and algorithm 1 as they are printed: views 2k - 1 and 2k are a pair."""
    z = torch.stack([z1, z2], dim=1).flatten(0, 1)

    def similarity(i: int, j: int) -> Tensor:
        return cosine_similarity(z[i], z[j], dim=0) / temperature

    def loss(i: int, j: int) -> Tensor:
        others = [similarity(i, k).exp() for k in range(len(z)) if k != i]
        return -(similarity(i, j).exp() / torch.stack(others).sum()).log()

    pairs = [loss(k, k + 1) + loss(k + 1, k) for k in range(0, len(z), 2)]
    return torch.stack(pairs).sum() / len(z)


def tiny_simclr(**changes: Any) -> SimCLR:
    """SimCLR on a linear backbone of 3x4x4 images."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(48, 12))
    settings = {"hidden_dim": 16, "embedding_dim": 8}
    return SimCLR(backbone, 12, SimCLRConfig(**(settings | changes)))


def two_views(n: int = 5) -> list[Tensor]:
    """2 of (n, 3, 4, 4)."""
    return list(torch.randn(2, n, 3, 4, 4, generator=torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_loss_and_gradient_are_those_of_the_printed_sums_over_pairs(temperature: float) -> None:
    found = [rows.double().requires_grad_() for rows in problem()]
    expected = [rows.double().requires_grad_() for rows in problem()]
    loss = nt_xent_loss(*found, temperature=temperature)["loss"]
    slow = slow_loss(expected[0], expected[1], temperature)
    torch.testing.assert_close(loss, slow)
    for ours, theirs in zip(
        torch.autograd.grad(loss, found), torch.autograd.grad(slow, expected), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_step_has_the_loss_of_the_two_views_in_one_batch() -> None:
    method, views = tiny_simclr(), two_views()
    z1, z2 = tiny_simclr().encoder(torch.cat(views)).chunk(2)
    torch.testing.assert_close(
        method(views, 1.0)["loss"], nt_xent_loss(z1, z2, temperature=0.1)["loss"]
    )
    assert method.views == (View(), View())


def test_accuracy_is_the_share_of_views_that_are_most_like_their_partner() -> None:
    method, views = tiny_simclr(), two_views()
    with torch.no_grad():
        z = normalize(tiny_simclr().encoder(torch.cat(views)), dim=1)
    similarity = z @ z.T - 9 * torch.eye(10)
    found = similarity.argmax(dim=1) == (torch.arange(10) + 5) % 10
    accuracy = method(views, 1.0)["instance_accuracy"]
    assert accuracy.item() == pytest.approx(100 * found.float().mean().item())
