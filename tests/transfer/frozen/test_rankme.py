"""RankMe: closed forms, and the definition by singular values."""

import numpy as np
import pytest
import torch

from transfer.frozen.rankme import EPSILON, rankme


@pytest.mark.parametrize("rank", [1, 5, 16])
def test_equal_singular_values_give_the_rank(rank: int) -> None:
    basis, _ = torch.linalg.qr(torch.randn(64, 16, dtype=torch.float64))
    features = basis[:, :rank] @ torch.eye(rank, 16, dtype=torch.float64)
    assert rankme(features) == pytest.approx(rank, rel=1e-3)


@pytest.mark.parametrize("shape", [(50, 20), (20, 50)])
def test_rank_follows_from_the_entropy_of_singular_values(shape: tuple[int, int]) -> None:
    features = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    singular = np.linalg.svd(features.double().numpy(), compute_uv=False)
    shares = singular / singular.sum() + EPSILON
    assert rankme(features) == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-6)
