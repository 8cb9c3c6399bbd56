import pytest
import torch
from torch.nn.functional import mse_loss, normalize

from pretrain.parts.losses import embedding_spread, negative_cosine
from tests.rounding import assert_equal_up_to_rounding


def test_it_is_half_the_squared_distance_of_unit_rows_less_one() -> None:
    prediction, target = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
    squares = mse_loss(normalize(prediction, dim=1), normalize(target, dim=1), reduction="sum")
    expected = squares / (2 * len(prediction)) - 1
    torch.testing.assert_close(negative_cosine(prediction, target), expected)


def test_spread_is_one_for_random_directions_and_zero_after_a_collapse() -> None:
    rows = torch.randn(4000, 16, generator=torch.Generator().manual_seed(0))
    assert embedding_spread(rows).item() == pytest.approx(1, abs=0.02)
    assert_equal_up_to_rounding(embedding_spread(rows[:1].expand(50, 16)), 0.0, magnitude=1.0)
