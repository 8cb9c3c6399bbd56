"""Shares of heads in correct predictions: cases whose shares are known."""

import math
from typing import Any

import pytest
import torch

from transfer.frozen.classifier import Heads
from transfer.frozen.head_shares import share_details


def classifier(weight: torch.Tensor) -> Heads:
    return Heads(weight[None], torch.zeros(1, len(weight)))


def head_shares(heads: Heads, features: torch.Tensor, labels: torch.Tensor, num_heads: int) -> Any:
    """Mean shares; none if no image counts."""
    return share_details(heads, features, labels, num_heads).get("head_shares", [])


def test_neither_wrong_predictions_nor_what_raises_all_scores_alike_count() -> None:
    weight = torch.cat([torch.eye(2), torch.ones(2, 2)], dim=1)
    features = torch.tensor([[1.0, 0.0, 1.0, 1.0], [1.0, 0.0, 1.0, 1.0]])
    assert head_shares(classifier(weight), features, torch.tensor([0, 1]), 2) == [1.0, 0.0]
    assert head_shares(classifier(weight), features, torch.tensor([1, 1]), 2) == []


def test_contribution_statistics_are_per_image() -> None:
    """Return three images that different heads classify."""
    weight = torch.cat([torch.eye(3), torch.eye(3)], dim=1)
    both = torch.tensor([0.0, 0.0, 1.0])
    features = torch.cat([torch.eye(3), torch.stack([0 * both, 0 * both, both])], dim=1)
    details: Any = share_details(classifier(weight), features, torch.arange(3), 2)
    assert details["head_shares"] == pytest.approx([5 / 6, 1 / 6])
    # the entropy of the mean is not the mean of the entropies
    entropy = -(5 / 6 * math.log2(5 / 6) + 1 / 6 * math.log2(1 / 6))
    assert details["head_entropy_bits"] == pytest.approx(entropy)
    assert details["image_entropy_bits"] == pytest.approx(1 / 3)
    first, second = details["head_share_histograms"]["counts"]
    assert (sum(first), sum(second), details["num_images_with_shares"]) == (3, 3, 3)
    assert (first[10], first[-1], second[0], second[10]) == (1, 2, 2, 1)
    assert details["class_head_shares"] == [[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]]
    assert details["head_share_examples"][2] == {"index": 2, "label": 2, "shares": [0.5, 0.5]}
    assert details["head_is_largest"] == [1.0, 0.0]  # of equal shares, the first
