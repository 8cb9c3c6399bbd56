"""Classifiers trained together are those that would be trained alone."""

from collections.abc import Iterator

import pytest
import torch
from torch.nn.functional import cross_entropy

from transfer.frozen.feature_cache import Features
from transfer.frozen.few_shot_heads import WEIGHT_STD, Problem, _order, draw_support, train_together

ITERATIONS, RATE, BATCH_SIZE = 12, 0.03, 8


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    """Adam divides by tiny gradients, which would enlarge float32 roundings."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


LABELS = torch.arange(5).repeat(9)
"""Five classes of nine images."""
PROBLEMS = [
    Problem(draw_support(LABELS, shots=shots, num_classes=5, seed=trial), seed=trial)
    for shots in (2, 6)
    for trial in (3, 4)
]


def test_trials_and_shots_together_equal_a_training_of_each() -> None:
    generator = torch.Generator().manual_seed(0)
    pool = Features(torch.randn(45, 16, generator=generator) + LABELS[:, None], LABELS)
    weight, bias = train_together(
        pool,
        PROBLEMS,
        num_classes=5,
        iterations=ITERATIONS,
        learning_rate=RATE,
        batch_size=BATCH_SIZE,
    )
    for i, problem in enumerate(PROBLEMS):
        # torch's own layer and optimizer, one problem at a time
        layer = torch.nn.Linear(16, 5)
        start = torch.Generator().manual_seed(problem.seed)
        with torch.no_grad():
            layer.weight.copy_(WEIGHT_STD * torch.randn(5, 16, generator=start))
            layer.bias.zero_()
        optimizer = torch.optim.Adam(layer.parameters(), lr=RATE)
        for rows in _order(problem, ITERATIONS * BATCH_SIZE).split(BATCH_SIZE):
            optimizer.zero_grad()
            cross_entropy(layer(pool.features[rows]), pool.labels[rows]).backward()
            optimizer.step()
        torch.testing.assert_close(weight[i], layer.weight.detach())
        torch.testing.assert_close(bias[i], layer.bias.detach())


def test_classes_are_sampled_equally_often() -> None:
    support = draw_support(LABELS, shots=4, num_classes=5, seed=0)
    assert torch.bincount(LABELS[support]).tolist() == [4] * 5
    assert len(set(support.tolist())) == 20


def test_a_pass_shows_every_supporting_image_once() -> None:
    order = _order(PROBLEMS[0], ITERATIONS * BATCH_SIZE)  # ten images, twelve batches of eight
    assert len(order) == 96
    expected = PROBLEMS[0].support.sort().values.expand(9, 10)
    assert torch.equal(order[:90].view(9, 10).sort(dim=1).values, expected)
