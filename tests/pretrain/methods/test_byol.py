"""BYOL against its equations by other routes: Grill et al., arXiv:2006.07733."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.methods.byol import BYOL, byol_loss
from pretrain.recipes.byol import BYOLConfig


def tiny_byol(**changes: Any) -> Any:
    """BYOL on a linear backbone of 3x4x4 images."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(48, 12))
    settings = {"hidden_dim": 16, "embedding_dim": 8, "momentum": 0.9}
    return BYOL(backbone, 12, BYOLConfig(**(settings | changes)))


def two_views(n: int = 5) -> list[Tensor]:
    """2 of (n, 3, 4, 4)."""
    return list(torch.randn(2, n, 3, 4, 4, generator=torch.Generator().manual_seed(1)))


def test_loss_is_the_squared_distance_of_the_normalized_rows() -> None:
    prediction, target = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
    distances = [
        sum((a / a.norm() - b / b.norm()).square()) for a, b in zip(prediction, target, strict=True)
    ]
    expected = torch.stack([torch.as_tensor(distance) for distance in distances]).mean()
    torch.testing.assert_close(byol_loss(prediction, target), expected)


def test_a_step_sums_both_directions_each_against_the_target_of_the_other_view() -> None:
    method, views = tiny_byol(), two_views()
    twin = tiny_byol()
    predictions = [twin.predictor(twin.encoder(images)) for images in views]
    with torch.no_grad():  # before the first step the target encoder is a copy
        targets = [normalize(twin.encoder(images), dim=1) for images in views]
    expected = torch.stack(
        [
            (normalize(predictions[view], dim=1) - targets[1 - view]).square().sum(dim=1).mean()
            for view in range(2)
        ]
    ).sum()
    torch.testing.assert_close(method(views, 0.5)["loss"], expected)


@pytest.mark.parametrize("progress", [0.0, 0.3, 1.0])
def test_the_target_encoder_follows_at_the_rate_of_its_schedule(progress: float) -> None:
    method = tiny_byol()
    with torch.no_grad():
        for parameter in method.encoder.parameters():
            parameter.add_(torch.randn_like(parameter))
    before = copy.deepcopy(method.target_encoder.network)
    rate = 1 - (1 - 0.9) * (math.cos(math.pi * progress) + 1) / 2
    method.after_step(progress)
    for old, online, new in zip(
        before.parameters(),
        method.encoder.parameters(),
        method.target_encoder.network.parameters(),
        strict=True,
    ):
        torch.testing.assert_close(new, rate * old + (1 - rate) * online)
