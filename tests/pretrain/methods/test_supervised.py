"""Supervised training against its loss, computed differently."""

import pytest
import torch

from tests.rounding import assert_equal_up_to_rounding
from tests.tiny_methods import tiny_batch, tiny_method


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_is_the_cross_entropy_with_a_target_spread_over_all_classes(smoothing: float) -> None:
    method = tiny_method("supervised", num_classes=4, label_smoothing=smoothing)
    views, (labels,) = tiny_batch(method)
    scores = method.classifier(method.backbone(views[0]))
    target = (1 - smoothing) * torch.eye(4)[labels] + smoothing / 4
    expected = -(target * scores.log_softmax(dim=1)).sum(dim=1).mean()
    metrics = method(views, 1.0, labels)
    torch.testing.assert_close(metrics["loss"], expected)
    right = (scores.argmax(dim=1) == labels).float().mean()
    assert 0 < right < 1
    assert_equal_up_to_rounding(metrics["accuracy"], 100 * right)
