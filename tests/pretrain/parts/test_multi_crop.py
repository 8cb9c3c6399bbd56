import torch
from torch import nn

from pretrain.parts.multi_crop import cross_view_entropy, features_by_size


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


def test_no_view_is_asked_for_its_own_target() -> None:
    logits, targets = torch.randn(3, 6, 5), torch.rand(2, 6, 5).softmax(dim=2)
    loss = cross_view_entropy(logits, targets)
    only_first = cross_view_entropy(logits, targets[:1])
    changed = torch.cat([torch.randn(1, 6, 5), logits[1:]])
    assert torch.equal(cross_view_entropy(changed, targets[:1]), only_first)
    assert not torch.equal(cross_view_entropy(changed, targets), loss)
