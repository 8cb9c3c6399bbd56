import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from pretrain.parts.losses import instance_discrimination
from tests.rounding import assert_equal_up_to_rounding


def test_accuracy_is_the_share_of_keys_that_beat_the_whole_queue() -> None:
    torch.manual_seed(0)
    query = normalize(torch.randn(40, 4), dim=1)
    key = normalize(query + 0.5 * torch.randn(40, 4), dim=1)
    queue = normalize(torch.randn(10, 4), dim=1)
    logits = torch.cat([(query * key).sum(dim=1, keepdim=True), query @ queue.T], dim=1)
    correct = (logits.argmax(dim=1) == 0).float()
    assert 0 < correct.mean() < 1
    accuracy = instance_discrimination(query, key, queue, temperature=0.2).accuracy
    assert_equal_up_to_rounding(accuracy, 100 * correct.mean())


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_loss_is_cross_entropy_with_the_smoothed_target(smoothing: float) -> None:
    torch.manual_seed(0)
    query, key = normalize(torch.randn(2, 5, 8), dim=2)
    queue = normalize(torch.randn(30, 8), dim=1)
    leaf, simple = query.clone().requires_grad_(), query.clone().requires_grad_()
    logits = torch.cat([(simple * key).sum(dim=1, keepdim=True), simple @ queue.T], dim=1) / 0.2
    target = torch.full((5, 31), smoothing / 30)
    target[:, 0] = 1 - smoothing
    expected = cross_entropy(logits, target)
    loss = instance_discrimination(
        leaf, key, queue, temperature=0.2, label_smoothing=smoothing
    ).loss
    expected.backward()
    loss.backward()
    torch.testing.assert_close(loss, expected)
    assert_equal_up_to_rounding(leaf.grad, simple.grad)
