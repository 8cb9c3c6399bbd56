"""Parts of losses: closed forms, plain loops, cross entropies of torch."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from pretrain.parts.heads import features_by_size
from pretrain.parts.losses import (
    embedding_spread,
    instance_discrimination,
    off_diagonal_squares,
)
from tests.rounding import assert_equal_up_to_rounding


def rows(num_rows: int, dim: int) -> tuple[Tensor, Tensor]:
    """Two of (N, D), correlated."""
    generator = torch.Generator().manual_seed(0)
    draw = torch.randn(3, num_rows, dim, generator=generator, dtype=torch.float64)
    return draw[0] + draw[1], draw[0] + draw[2]


def entry_by_entry(first: Tensor, second: Tensor) -> Tensor:
    product = first.T @ second
    dim = len(product)
    squares = [product[i, j] ** 2 for i in range(dim) for j in range(dim) if i != j]
    return torch.stack(squares).sum()


@pytest.mark.parametrize(("num_rows", "dim"), [(9, 4), (5, 5), (4, 9)])
def test_more_features_than_rows_or_fewer_the_sum_and_its_gradient_are_the_same(
    num_rows: int, dim: int
) -> None:
    first, second = (part.requires_grad_() for part in rows(num_rows, dim))
    found, expected = off_diagonal_squares(first, second), entry_by_entry(first, second)
    torch.testing.assert_close(found, expected)
    gradient = torch.autograd.grad(found, [first, second])
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, [first, second]))


def test_spread_is_one_for_random_directions_and_zero_after_a_collapse() -> None:
    rows = torch.randn(4000, 16, generator=torch.Generator().manual_seed(0))
    assert embedding_spread(rows).item() == pytest.approx(1, abs=0.02)
    assert_equal_up_to_rounding(embedding_spread(rows[:1].expand(50, 16)), 0.0, magnitude=1.0)


def test_views_of_one_size_share_their_batch_statistics() -> None:
    views = [torch.randn(6, 3, size, size) for size in (4, 4, 2, 2, 2)]
    norm = nn.Sequential(nn.BatchNorm2d(3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    apart = [norm(torch.cat(views[:2])), norm(torch.cat(views[2:]))]
    torch.testing.assert_close(features_by_size(norm, views), torch.cat(apart))


def test_features_come_in_the_order_of_views_and_images() -> None:
    views = [torch.full((2, 1, size, size), 10.0 * place) for place, size in enumerate((4, 4, 2))]
    for view in views:
        view[1] += 1
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert features_by_size(pool, views).flatten().tolist() == [0, 1, 10, 11, 20, 21]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_loss_is_cross_entropy_with_the_smoothed_target_and_accuracy_that_of_the_logits(
    smoothing: float,
) -> None:
    query = normalize(torch.randn(40, 4), dim=1)
    key = normalize(query + 0.5 * torch.randn(40, 4), dim=1)
    queue = normalize(torch.randn(10, 4), dim=1)
    leaf, simple = query.clone().requires_grad_(), query.clone().requires_grad_()
    logits = torch.cat([(simple * key).sum(dim=1, keepdim=True), simple @ queue.T], dim=1) / 0.2
    target = torch.full((40, 11), smoothing / 10)
    target[:, 0] = 1 - smoothing
    expected = cross_entropy(logits, target)
    found = instance_discrimination(leaf, key, queue, temperature=0.2, label_smoothing=smoothing)
    expected.backward()
    found["loss"].backward()
    torch.testing.assert_close(found["loss"], expected)
    assert_equal_up_to_rounding(leaf.grad, simple.grad)
    correct = (logits.argmax(dim=1) == 0).float().mean()
    assert 0 < correct < 1
    assert_equal_up_to_rounding(found["instance_accuracy"], 100 * correct)
