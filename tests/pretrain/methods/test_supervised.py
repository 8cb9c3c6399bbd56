"""Supervised training against its loss by another route."""

import pytest
import torch
from torch import Tensor, nn

from pretrain.methods.supervised import Supervised
from pretrain.recipes.baselines import SupervisedConfig
from tests.rounding import assert_equal_up_to_rounding


def tiny_supervised(label_smoothing: float = 0.0) -> Supervised:
    """Four classes on a linear backbone of 3x4x4 images."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(48, 12))
    return Supervised(
        backbone, 12, SupervisedConfig(num_classes=4, label_smoothing=label_smoothing)
    )


def batch() -> tuple[Tensor, Tensor]:
    """Images (n, 3, 4, 4) and labels (n,)."""
    return torch.randn(6, 3, 4, 4), torch.tensor([0, 3, 1, 1, 2, 0])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_is_the_cross_entropy_with_a_target_spread_over_all_classes(smoothing: float) -> None:
    method = tiny_supervised(smoothing)
    images, labels = batch()
    log_share = method.classifier(method.backbone(images)).log_softmax(dim=1)
    target = (1 - smoothing) * torch.eye(4)[labels] + smoothing / 4
    expected = -(target * log_share).sum(dim=1).mean()
    torch.testing.assert_close(method([images], 1.0, labels)["loss"], expected)


def test_accuracy_is_the_share_of_labels_with_the_highest_score() -> None:
    method = tiny_supervised()
    images, _ = batch()
    guesses = method.classifier(method.backbone(images)).argmax(dim=1)
    labels = guesses.clone()
    labels[:2] = (labels[:2] + 1) % 4
    assert_equal_up_to_rounding(method([images], 1.0, labels)["accuracy"], 100 * 4 / 6)
