"""The moving average of an encoder, and its keys."""

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from pretrain.parts.momentum_encoder import MomentumEncoder, rising_momentum
from pretrain.parts.view import KeyForward
from tests.tiny_methods import tiny_method


def test_follow_equals_a_loop_over_parameters() -> None:
    encoder = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    follower = MomentumEncoder(encoder, momentum=0.9)
    start = [parameter.clone() for parameter in encoder.parameters()]
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter))
    encoder(torch.randn(8, 3))  # moves the encoder's batch-norm statistics
    follower.update(encoder)
    for ours, old, new in zip(follower.parameters(), start, encoder.parameters(), strict=True):
        torch.testing.assert_close(ours, 0.9 * old + 0.1 * new)
    statistics = dict(follower.named_buffers())["network.1.running_mean"]
    assert torch.equal(statistics, torch.zeros(4))


@pytest.mark.parametrize("name", ["byol", "dino", "simaffinity"])
def test_a_target_encoder_follows_after_the_step_at_a_rate_that_rises_to_one(name: str) -> None:
    for progress in (0.0, 0.5, 1.0):
        method = tiny_method(name)
        previous = [parameter.clone() for parameter in method.target_encoder.parameters()]
        with torch.no_grad():
            for parameter in method.encoder.parameters():
                parameter.add_(1)
        method.after_step(progress)
        rate = rising_momentum(method.config.momentum, progress)
        expected = [parameter + 1 - rate for parameter in previous]
        torch.testing.assert_close([*method.target_encoder.parameters()], expected)


def test_momentum_rises_to_one_by_half_a_cosine() -> None:
    assert rising_momentum(0.99, 0.0) == pytest.approx(0.99)
    assert rising_momentum(0.99, 0.5) == pytest.approx(0.995)
    assert rising_momentum(0.99, 1.0) == 1.0


@pytest.mark.parametrize("key_forward", ["concatenated", "per_view"])
def test_each_key_stands_at_its_image_and_its_view(key_forward: KeyForward) -> None:
    views = list(torch.randn(3, 4, 3, 2, 2))
    keys = MomentumEncoder(nn.Flatten(), 0.9).positive_keys(views, 2, key_forward)
    assert keys.shape == (4, 3, 12)
    for image in range(4):
        for view in range(3):
            expected = normalize(views[view][image].flatten(), dim=0)
            torch.testing.assert_close(keys[image, view], expected)
