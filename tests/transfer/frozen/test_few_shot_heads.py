"""Classifiers trained together are those that would be trained alone."""

from collections.abc import Iterator

import pytest
import torch
from torch.nn.functional import cross_entropy

from transfer.frozen.features import Features
from transfer.frozen.few_shot_heads import WEIGHT_STD, Problem, _order, draw_support, train_together

ITERATIONS, RATE, BATCH_SIZE = 12, 0.03, 8


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    """Adam divides by gradients near 0: in float32 it would enlarge their roundings."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def pool() -> Features:
    """Five classes of nine images."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(5).repeat(9)
    return Features(torch.randn(45, 16, generator=generator) + labels[:, None], labels)


@pytest.fixture
def problems(pool: Features) -> list[Problem]:
    """Two draws of two and of six images."""
    return [
        Problem(draw_support(pool.labels, shots=shots, num_classes=5, seed=trial), seed=trial)
        for shots in (2, 6)
        for trial in (3, 4)
    ]


def test_trials_and_shots_together_equal_a_training_of_each(
    pool: Features, problems: list[Problem]
) -> None:
    weight, bias = train_together(
        pool,
        problems,
        num_classes=5,
        iterations=ITERATIONS,
        learning_rate=RATE,
        batch_size=BATCH_SIZE,
    )
    for i, problem in enumerate(problems):
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


def test_every_class_is_drawn_equally_often_and_no_image_twice(pool: Features) -> None:
    support = draw_support(pool.labels, shots=4, num_classes=5, seed=0)
    assert torch.bincount(pool.labels[support]).tolist() == [4] * 5
    assert len(set(support.tolist())) == 20


def test_a_class_with_too_few_images_is_named(pool: Features) -> None:
    with pytest.raises(ValueError, match="class 0 has 9 images to draw 10 from"):
        draw_support(pool.labels, shots=10, num_classes=5, seed=0)


def test_a_pass_shows_every_supporting_image_once(problems: list[Problem]) -> None:
    order = _order(problems[0], ITERATIONS * BATCH_SIZE)  # ten images, twelve batches of eight
    assert len(order) == 96
    for start in range(0, 90, 10):
        assert sorted(order[start : start + 10].tolist()) == sorted(problems[0].support.tolist())
