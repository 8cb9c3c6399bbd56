"""The power of comparisons equals slow sums and simulations."""

import math
from math import comb

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest

from benchmarks.power import PowerModel, mcnemar_power, power_model
from benchmarks.results.differences import Score, difference
from tests.benchmarks.results.test_differences import score

Rights = NDArray[np.bool_]


@pytest.mark.parametrize(
    ("num_images", "discordant", "effect", "level"),
    [(40, 0.4, 0.2, 0.05), (30, 0.9, 0.5, 0.05), (35, 0.2, 0.2, 0.01), (25, 0.5, 0.0, 0.05)],
)
def test_mcnemar_power_is_the_sum_over_all_outcomes(
    num_images: int, discordant: float, effect: float, level: float
) -> None:
    win, expected = (1 + effect / discordant) / 2, 0.0
    for count in range(1, num_images + 1):
        weight = (
            comb(num_images, count) * discordant**count * (1 - discordant) ** (num_images - count)
        )
        for wins in range(count + 1):
            if binomtest(wins, count).pvalue < level:
                expected += weight * comb(count, wins) * win**wins * (1 - win) ** (count - wins)
    assert mcnemar_power(num_images, discordant, effect, level) == pytest.approx(expected)


def test_power_of_one_run_each_matches_drawn_experiments() -> None:
    rng, num_images, draws = np.random.default_rng(0), 500, 1000
    model = PowerModel(num_images=num_images, discordant=0.2)
    points = model.smallest()
    for effect, promised in ((points / 100, 0.8), (0.0, 0.05)):
        result = 0
        for _ in range(draws):
            kind = rng.random(num_images)
            single = (0.2 + effect) / 2
            first, second = kind < single, (kind >= single) & (kind < 0.2)
            result += difference(score(first), score(second), "").p < 0.05
        error = math.sqrt(promised * (1 - promised) / draws)
        if effect:
            assert abs(result / draws - promised) < 0.03 + 3 * error
        else:
            assert result / draws < promised + 3 * error


def experiment(
    rng: np.random.Generator, effect: float, seeds: int, num_images: int = 400
) -> tuple[Score, Score]:
    """Draw test images and seeds of two checkpoints whose accuracies differ."""
    difficulty = rng.uniform(0.1, 0.9, num_images)
    harder = rng.random(num_images) < 0.3  # images on which they differ anyway

    def runs(shift: float, sign: float) -> list[Rights]:
        chance = np.clip(difficulty + shift, 0, 1)
        chance = np.where(harder, np.clip(chance + sign * 0.05, 0, 1), chance)
        moved = rng.normal(0, 0.02, seeds)  # one number for all images of a seed
        return [rng.random(num_images) < np.clip(chance + ours, 0, 1) for ours in moved]

    return score(*runs(effect, 1)), score(*runs(0.0, -1) if effect else runs(0.0, 1))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 4])
def test_power_of_means_over_seeds_matches_drawn_experiments(seeds: int) -> None:
    effect, draws = 0.06, 1500
    pilot = np.random.default_rng(1)
    # the true difference, and the variances, from many images and seeds
    many = experiment(pilot, effect, 60, 20_000)
    points = many[0].mean - many[1].mean
    rough = [power_model(*experiment(pilot, effect, 30), "", seeded=True) for _ in range(20)]
    model = PowerModel(
        image_variance=float(np.mean([item.image_variance for item in rough])),
        answer_variance=float(np.mean([item.answer_variance for item in rough])),
        sigma=math.sqrt(np.mean([item.sigma**2 for item in rough])),
        freedom=58,
    )
    rng = np.random.default_rng(2)
    for shift, promised in ((effect, model.power(points, (seeds, seeds))), (0.0, 0.05)):
        pairs = (experiment(rng, shift, seeds) for _ in range(draws))
        result = sum(difference(*pair, "").p < 0.05 for pair in pairs) / draws
        error = math.sqrt(promised * (1 - promised) / draws)
        if shift:
            assert abs(result - promised) < 0.03 + 3 * error, (result, promised)
        else:
            assert result < promised + 3 * error


def test_no_number_of_seeds_replaces_test_images() -> None:
    model = PowerModel(image_variance=0.25, sigma=0.1, freedom=4)
    floor = model.smallest_of_images()
    assert floor == pytest.approx((1.959964 + 0.841621) * 0.5, rel=1e-5)
    assert model.seeds_for(0.98 * floor, 0.05) == math.inf
    assert 2 <= model.seeds_for(1.2 * floor, 0.05) < 10


def test_larger_differences_need_fewer_seeds() -> None:
    model = PowerModel(image_variance=0.01, sigma=0.4, freedom=4)
    needed = [model.seeds_for(points, 0.05) for points in (0.5, 0.8, 1.6)]
    assert needed == sorted(needed, reverse=True)
    assert needed[0] > needed[-1] >= 2
    counts = [int(needed[1]) - fewer for fewer in (0, 1)]
    power = [model.power(0.8, (count, count)) for count in counts]
    assert power[0] >= 0.8 > power[1]


def test_seed_changes_nothing_for_knn() -> None:
    model = PowerModel(num_images=1000, discordant=0.1, seeded=False)
    floor = model.smallest()
    assert (model.seeds_for(floor + 0.1, 0.05), model.seeds_for(floor - 0.1, 0.05)) == (1, math.inf)


def test_few_seeds_give_a_range() -> None:
    low, high = PowerModel(sigma=1.0, freedom=2).sigmas
    assert (low, high) == pytest.approx((0.5778, 4.4154), rel=1e-3)  # chi-squared: 5.991, 0.1026
    assert PowerModel(sigma=1.0).sigmas == (1.0, 1.0)


def test_answers_of_seeds_are_apart_from_images() -> None:
    rng = np.random.default_rng(0)
    first, second = (score(*(rng.random((3, 400)) < chance)) for chance in (0.6, 0.5))
    model = power_model(first, second, "", seeded=True)
    # answers that nothing but the seed decides: no variance is left that only images reduce
    assert model.answer_variance == pytest.approx(1e4 * (0.24 + 0.25) / 400, rel=0.1)
    assert model.image_variance < 0.1 * model.answer_variance
    assert (model.runs, model.freedom, model.discordant is not None) == ((3, 3), 4, True)
