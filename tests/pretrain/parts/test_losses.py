"""Parts of losses against closed forms, plain loops and torch's cross-entropy."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from pretrain.parts.heads import features_by_size
from pretrain.parts.losses import embedding_spread, instance_discrimination
from tests.rounding import assert_equal_up_to_rounding


def test_spread_is_zero_after_a_collapse() -> None:
    rows = torch.randn(4000, 16, generator=torch.Generator().manual_seed(0))
    assert embedding_spread(rows).item() == pytest.approx(1, abs=0.02)
    assert_equal_up_to_rounding(embedding_spread(rows[:1].expand(50, 16)), 0.0, magnitude=1.0)


def test_views_of_one_size_share_their_batch_statistics() -> None:
    views = [torch.randn(6, 3, size, size) for size in (4, 4, 2, 2, 2)]
    norm = nn.Sequential(nn.BatchNorm2d(3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    by_size = [norm(torch.cat(views[:2])), norm(torch.cat(views[2:]))]
    torch.testing.assert_close(features_by_size(norm, views), torch.cat(by_size))


def test_features_by_size_are_one_graph() -> None:
    views = [torch.randn(6, 3, size, size) for size in (4, 4, 2)]
    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    traced = torch.compile(features_by_size, backend="eager", fullgraph=True)
    torch.testing.assert_close(traced(network, views), features_by_size(network, views))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_loss_is_cross_entropy_with_smoothed_targets(
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
    result = instance_discrimination(leaf, key, queue, temperature=0.2, label_smoothing=smoothing)
    expected.backward()
    result["loss"].backward()
    torch.testing.assert_close(result["loss"], expected)
    assert_equal_up_to_rounding(leaf.grad, simple.grad)
    correct = (logits.argmax(dim=1) == 0).float().mean()
    assert 0 < correct < 1
    assert_equal_up_to_rounding(result["instance_accuracy"], 100 * correct)
