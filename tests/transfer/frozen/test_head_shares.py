"""Shares of heads in correct predictions: cases whose shares are known."""

import pytest
import torch

from transfer.frozen.classifier import Heads
from transfer.frozen.head_shares import entropy_bits, head_shares


def classifier(weight: torch.Tensor) -> Heads:
    return Heads(weight[None], torch.zeros(1, len(weight)))


def test_a_head_whose_weights_are_zero_has_no_share() -> None:
    weight = torch.cat([torch.eye(2), torch.zeros(2, 2)], dim=1)
    features = torch.tensor([[1.0, 0.0, 5.0, 3.0], [0.0, 1.0, 2.0, 7.0]])
    assert head_shares(classifier(weight), features, torch.tensor([0, 1]), 2) == [1.0, 0.0]


def test_equal_heads_share_equally() -> None:
    weight = torch.cat([torch.eye(3)] * 4, dim=1)
    features = torch.cat([torch.eye(3)] * 4, dim=1)
    shares = head_shares(classifier(weight), features, torch.arange(3), 4)
    assert shares == pytest.approx([0.25] * 4)
    assert entropy_bits(shares) == pytest.approx(2.0)


def test_wrong_predictions_do_not_count() -> None:
    weight = torch.cat([torch.eye(2), torch.zeros(2, 2)], dim=1)
    features = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    assert head_shares(classifier(weight), features, torch.tensor([0, 1]), 2) == [1.0, 0.0]
    assert head_shares(classifier(weight), features, torch.tensor([1, 1]), 2) == []


def test_what_raises_all_scores_alike_counts_for_nothing() -> None:
    weight = torch.cat([torch.eye(2), torch.ones(2, 2)], dim=1)
    shares = head_shares(classifier(weight), torch.ones(1, 4) * 2, torch.tensor([0]), 2)
    assert shares == [] or shares == pytest.approx([1.0, 0.0])


@pytest.mark.parametrize(("shares", "bits"), [([1.0, 0.0], 0.0), ([0.5, 0.5, 0.0, 0.0], 1.0)])
def test_entropy_is_in_bits(shares: list[float], bits: float) -> None:
    assert entropy_bits(shares) == pytest.approx(bits)
