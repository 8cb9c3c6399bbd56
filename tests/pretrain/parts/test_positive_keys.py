import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from pretrain.parts.choices import KeyForward
from pretrain.parts.momentum_encoder import positive_keys, similarities


@pytest.mark.parametrize("key_forward", ["concatenated", "per_view"])
def test_each_key_stands_at_its_image_and_its_view(key_forward: KeyForward) -> None:
    views = list(torch.randn(3, 4, 3, 2, 2))
    keys = positive_keys(nn.Flatten(), views, key_forward=key_forward, bn_splits=2)
    assert keys.shape == (4, 3, 12)
    for image in range(4):
        for view in range(3):
            expected = normalize(views[view][image].flatten(), dim=0)
            torch.testing.assert_close(keys[image, view], expected)


def test_similarities_are_products_with_the_own_keys() -> None:
    query, keys = torch.randn(4, 8), torch.randn(4, 3, 8)
    expected = torch.stack([keys[i] @ query[i] for i in range(4)])
    torch.testing.assert_close(similarities(query, keys), expected)
