"""What a comparison can show: its power, the smallest difference it can show, and the seeds needed.

The power is the probability of p < level under the test of `differences.difference`, for a true
difference that the caller states. It never follows from the observed difference: a power computed
from that is biased (Hoenig and Heisey, The American Statistician 2001). The answers and seeds that
are there give the nuisance parameters alone: the share of images that one checkpoint alone has
right, the variance over test images, and the standard deviation over seeds.

- One run each, right or wrong answers: McNemar's exact test, summed over the number of images that
  one alone has right (Connor, Biometrics 1987, gives the approximation).
- Means over seeds or classes: simulated differences and seed variances, Welch's test on each.
- AP and mAP: the same, with the variance over 200 resampled test sets.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.results.differences import (
    LEVEL,
    POWER,
    Score,
    image_variance,
    is_paired,
    run_deviation,
    with_errors,
)
from transfer.outcomes import Floats, read_per_image

MAX_SEEDS = 1000
"""Most seeds that are tried."""
NUM_DRAWS = 20_000
"""Simulated experiments; the error of a simulated power is at most 0.35 points."""
COVERAGE = 0.9
"""Coverage of the interval of a standard deviation that few seeds give."""


@dataclass(frozen=True, kw_only=True)
class PowerModel:
    """What decides the power of a comparison of two checkpoints on one task; points, percent."""

    runs: tuple[int, int] = (1, 1)
    """Runs of each checkpoint that are there."""
    num_images: int | None = None
    discordant: float | None = None
    """Fraction of the images that one checkpoint alone has right, between one run of each; None if
    McNemar's test does not apply."""
    image_variance: float = 0.0
    """Variance of the difference over test images; no number of seeds reduces it."""
    answer_variance: float = 0.0
    """Further variance over test images with one seed; k seeds divide it by k."""
    sigma: float = 0.0
    """Standard deviation of one checkpoint's number over seeds."""
    freedom: int = 0
    """Degrees of freedom of sigma; 0 if it is assumed."""
    paired: bool = True
    """Both are compared on the same images, so that one run each has no variance over seeds."""
    seeded: bool = True
    """The seed changes the number, unlike that of kNN."""

    def power(
        self, points: float, runs: tuple[int, int], level: float = LEVEL, sigma: float | None = None
    ) -> float:
        """Return the probability that a true difference of so many points gives p < level.

        runs: of each checkpoint. sigma: another standard deviation over seeds than the estimate.
        """
        sigma = self.sigma if sigma is None else sigma
        if runs == (1, 1) and self.discordant is not None and self.num_images:
            return mcnemar_power(self.num_images, self.discordant, points / 100, level)
        # of each number: variance over seeds, and how many squares estimate it
        assumed = 0.0 if self.paired else sigma**2
        over_seeds = [sigma**2 / k if k > 1 else assumed for k in runs]
        over_answers = self.answer_variance * sum(1 / k for k in runs) / 2
        return _mean_power(
            points,
            # the seeds' own variance contains that of their answers
            true_variance=self.image_variance + (over_answers if max(runs) == 1 else 0.0),
            stated_variance=self.image_variance + over_answers,
            over_seeds=over_seeds,
            freedoms=[k - 1 for k in runs],
            level=level,
        )

    def smallest(self, runs: tuple[int, int] | None = None, level: float = LEVEL) -> float:
        """Return the smallest difference in points that has POWER with so many runs of each."""
        runs = runs or self.runs
        low, high = 0.0, 0.5
        while self.power(high, runs, level) < POWER:
            low, high = high, 2 * high
            if high > 100:
                return math.inf
        while high - low > 0.005:
            middle = (low + high) / 2
            low, high = (
                (low, middle) if self.power(middle, runs, level) >= POWER else (middle, high)
            )
        return high

    def seeds_for(self, points: float, level: float = LEVEL, sigma: float | None = None) -> float:
        """Return with how many seeds of each a difference has POWER; inf if no number suffices.

        One seed compares two runs, not what the evaluation of two files gives: two is the least,
        but for tasks on which the seed has no effect.
        """
        if not self.seeded:
            return 1 if self.power(points, (1, 1), level) >= POWER else math.inf

        def suffices(count: int) -> bool:
            return self.power(points, (count, count), level, sigma) >= POWER

        high = 2
        while not suffices(high):
            high *= 2
            if high > MAX_SEEDS:
                return math.inf
        low = high // 2 if high > 2 else 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if suffices(middle) else (middle, high)
        return high

    def smallest_of_images(self, level: float = LEVEL) -> float:
        """Return the smallest difference in points that any number of seeds can show."""
        from scipy.special import ndtri

        return float(ndtri(1 - level / 2) + ndtri(POWER)) * math.sqrt(self.image_variance)

    @cached_property
    def sigmas(self) -> tuple[float, float]:
        """Return the interval of sigma from few seeds; twice the same if it is assumed."""
        from scipy.special import chdtri

        if not self.freedom:
            return self.sigma, self.sigma
        low, high = (
            chdtri(self.freedom, tail) for tail in (0.5 - COVERAGE / 2, 0.5 + COVERAGE / 2)
        )
        return tuple(self.sigma * math.sqrt(self.freedom / float(x)) for x in (low, high))  # type: ignore[return-value]


def power_model(first: Score, second: Score, task: str, *, seeded: bool = True) -> PowerModel:
    """Return what the runs of two comparable scores say about the power of their comparison."""
    first, second = with_errors([first, second])
    scores, runs = (first, second), (first.runs, second.runs)
    paired = is_paired(first, second)
    variances = [(score.std**2, score.runs - 1) for score in scores if score.runs > 1]
    freedom = sum(own for _, own in variances)
    if freedom:
        sigma = math.sqrt(sum(variance * own for variance, own in variances) / freedom)
    else:
        sigma = run_deviation(task).points if seeded else 0.0
    answers = [_answers(score) for score in scores] if paired else []
    if not all(own is not None for own in answers):
        answers = []
    discordant, per_seed = None, 0.0
    if answers and scores[0].per_image is not None:
        weights = scores[0].per_image.weights(first.metric)
        spread = [own.var(axis=0, ddof=1) for own in answers if own is not None and len(own) > 1]
        per_seed = 2e4 * float((weights**2 * np.mean(spread, axis=0)).sum()) if spread else 0.0
        one, other = (own[0] for own in answers if own is not None)
        is_plain = first.metric != "mean_per_class" and set(np.unique([one, other])) <= {0.0, 1.0}
        discordant = float((one != other).mean()) if is_plain else None
    over_images = image_variance(first, second)
    # what the seeds' answers contribute to it
    share = per_seed * sum(1 / k for k in runs) / 2
    return PowerModel(
        runs=runs,
        num_images=len(first.per_image.labels) if first.per_image else first.num_images,
        discordant=discordant,
        image_variance=max(0.0, over_images - share),
        answer_variance=per_seed,
        sigma=sigma,
        freedom=freedom,
        paired=paired,
        seeded=seeded,
    )


def _answers(score: Score) -> Floats | None:
    """Return the right answers (runs, n) of each run; None unless all runs store them."""
    stored = [read_per_image(details) for details in score.details]
    if score.per_image is None or any(own is None for own in stored):
        return None
    return np.stack([own.shares for own in stored if own is not None])


def _mean_power(
    points: float,
    *,
    true_variance: float,
    stated_variance: float,
    over_seeds: Sequence[float],
    freedoms: Sequence[int],
    level: float,
) -> float:
    """Return the power of Welch's test on two means, simulated where seeds estimate a variance.

    true_variance, stated_variance: over test images, as it is and as the test has it. over_seeds:
    variance of each mean over seeds; freedoms: its degrees of freedom, 0 if it is not estimated.
    """
    from scipy.special import ndtr, ndtri, stdtr

    error = math.sqrt(true_variance + sum(over_seeds))
    if not any(freedoms):
        critical = -ndtri(level / 2) * math.sqrt(stated_variance + sum(over_seeds))
        if error == 0:
            return float(points != 0)
        return float(ndtr((points - critical) / error) + ndtr((-points - critical) / error))
    draw = np.random.default_rng(0)  # the same draws for every effect: power grows with it
    observed = points + error * draw.standard_normal(NUM_DRAWS)
    variance, of_parts = np.full(NUM_DRAWS, stated_variance), np.zeros(NUM_DRAWS)
    for own, freedom in zip(over_seeds, freedoms, strict=True):
        estimate = own * (draw.chisquare(freedom, NUM_DRAWS) / freedom if freedom else 1.0)
        variance += estimate
        of_parts += estimate**2 / freedom if freedom else 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        p_values = 2 * stdtr(variance**2 / of_parts, -abs(observed) / np.sqrt(variance))
    return float((p_values < level).mean())


def mcnemar_power(num_images: int, discordant: float, effect: float, level: float) -> float:
    """Return the power of McNemar's exact test, over all numbers of discordant images.

    discordant: probability that one checkpoint alone has an image right, at least |effect|.
    effect: difference of both accuracies, as a fraction.
    """
    from scipy.special import betainc, gammaln, xlog1py, xlogy

    effect = abs(effect)
    discordant = min(1.0, max(discordant, effect))
    if discordant == 0:
        return 0.0
    mean = num_images * discordant
    reach = 8 * math.sqrt(mean) + 8
    counts = np.arange(max(1, int(mean - reach)), min(num_images, int(mean + reach)) + 1.0)
    rest = num_images - counts
    logs = gammaln(num_images + 1) - gammaln(counts + 1) - gammaln(rest + 1)
    logs += xlogy(counts, discordant) + xlog1py(rest, -discordant)

    def tail(wins: Floats, probability: float) -> Floats:
        """Return the probability of at least so many wins among each of the counts."""
        inside = np.minimum(wins, counts)
        found: Floats = betainc(inside, counts - inside + 1, probability)
        return np.where(wins > counts, 0.0, found)

    # the smallest number of wins that is significant, for each count; none: one more than all
    low, high = np.ceil(counts / 2), counts + 1
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        is_significant = 2 * tail(middle, 0.5) < level
        low, high = np.where(is_significant, low, middle), np.where(is_significant, middle, high)
    win = (1 + effect / discordant) / 2
    return float((np.exp(logs) * (tail(high, win) + tail(high, 1 - win))).sum())
