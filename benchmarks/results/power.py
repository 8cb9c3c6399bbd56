"""Statistical power: smallest detectable differences, and numbers of seeds.

The power is the probability of p < level under the test of `differences.difference`, for a true
difference that the caller states. It is never computed from the observed difference, since that
estimate is biased (Hoenig and Heisey, The American Statistician 2001). The existing results only
provide the nuisance parameters: the fraction of images that only one checkpoint classifies
correctly, the variance over test images, and the standard deviation over seeds.

- One run each, correct or wrong answers: McNemar's exact test, summed over the number of images
  that only one classifies correctly (Connor, Biometrics 1987, gives the approximation).
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
"""Maximum number of seeds."""
NUM_DRAWS = 20_000
"""Simulated experiments; simulated powers have an error below 0.35 points."""
COVERAGE = 0.9
"""Coverage of the interval of a standard deviation that few seeds give."""


@dataclass(frozen=True, kw_only=True)
class PowerModel:
    """Parameters of the power of one comparison, in points and percent."""

    runs: tuple[int, int] = (1, 1)
    """Number of runs of each checkpoint."""
    num_images: int | None = None
    discordant: float | None = None
    """Fraction of images that only one of two runs classifies correctly.

    None if McNemar's test does not apply.
    """
    image_variance: float = 0.0
    """Variance of the difference over test images, for any number of seeds."""
    answer_variance: float = 0.0
    """Further variance over test images; k seeds divide it by k."""
    sigma: float = 0.0
    """Standard deviation of one checkpoint's number over seeds."""
    freedom: int = 0
    """Degrees of freedom of sigma; 0 if it is assumed."""
    paired: bool = True
    """Both use the same images, so single runs have no seed variance."""
    seeded: bool = True
    """The seed changes the number (not so for kNN)."""

    def power(
        self, points: float, runs: tuple[int, int], level: float = LEVEL, sigma: float | None = None
    ) -> float:
        """Return the probability that a true difference gives p < level.

        runs: runs of each checkpoint. sigma: standard deviation over seeds, if not the estimate.
        """
        sigma = self.sigma if sigma is None else sigma
        if runs == (1, 1) and self.discordant is not None and self.num_images:
            return mcnemar_power(self.num_images, self.discordant, points / 100, level)
        # variance over seeds of each number
        assumed = 0.0 if self.paired else sigma**2
        over_seeds = [sigma**2 / k if k > 1 else assumed for k in runs]
        over_answers = self.answer_variance * sum(1 / k for k in runs) / 2
        return _mean_power(
            points,
            # the variance over seeds includes the variance of their answers
            true_variance=self.image_variance + (over_answers if max(runs) == 1 else 0.0),
            stated_variance=self.image_variance + over_answers,
            over_seeds=over_seeds,
            freedoms=[k - 1 for k in runs],
            level=level,
        )

    def smallest(self, runs: tuple[int, int] | None = None, level: float = LEVEL) -> float:
        """Return the smallest difference in points detected with POWER."""
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
        """Return the number of seeds that detect a difference with POWER.

        inf if no number suffices. At least two, since one seed would compare two single runs,
        unless the seed has no effect on the task.
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
        """Return the smallest difference that any number of seeds detects."""
        from scipy.special import ndtri

        return float(ndtri(1 - level / 2) + ndtri(POWER)) * math.sqrt(self.image_variance)

    @cached_property
    def sigmas(self) -> tuple[float, float]:
        """Return the confidence interval of sigma; a point if it is assumed."""
        from scipy.special import chdtri

        if not self.freedom:
            return self.sigma, self.sigma
        low, high = (
            chdtri(self.freedom, tail) for tail in (0.5 - COVERAGE / 2, 0.5 + COVERAGE / 2)
        )
        return tuple(self.sigma * math.sqrt(self.freedom / float(x)) for x in (low, high))  # type: ignore[return-value]


def power_model(first: Score, second: Score, task: str, *, seeded: bool = True) -> PowerModel:
    """Estimate the power of a comparison from the runs of two scores."""
    first, second = with_errors([first, second])
    scores, runs = (first, second), (first.runs, second.runs)
    paired = is_paired(first, second)
    variances = [(score.std**2, score.runs - 1) for score in scores if score.runs > 1]
    freedom = sum(degrees for _, degrees in variances)
    if freedom:
        sigma = math.sqrt(sum(variance * degrees for variance, degrees in variances) / freedom)
    else:
        sigma = run_deviation(task).points if seeded else 0.0
    answers = [_answers(score) for score in scores] if paired else []
    if not all(run_answers is not None for run_answers in answers):
        answers = []
    discordant, per_seed = None, 0.0
    if answers and scores[0].per_image is not None:
        weights = scores[0].per_image.weights(first.metric)
        spread = [
            run_answers.var(axis=0, ddof=1)
            for run_answers in answers
            if run_answers is not None and len(run_answers) > 1
        ]
        per_seed = 2e4 * float((weights**2 * np.mean(spread, axis=0)).sum()) if spread else 0.0
        first_run, second_run = (
            run_answers[0] for run_answers in answers if run_answers is not None
        )
        answer_values = set(np.unique([first_run, second_run]))
        is_plain = first.metric != "mean_per_class" and answer_values <= {0.0, 1.0}
        discordant = float((first_run != second_run).mean()) if is_plain else None
    over_images = image_variance(first, second)
    # contribution of the seeds' answers
    seed_part = per_seed * sum(1 / k for k in runs) / 2
    return PowerModel(
        runs=runs,
        num_images=len(first.per_image.labels) if first.per_image else first.num_images,
        discordant=discordant,
        image_variance=max(0.0, over_images - seed_part),
        answer_variance=per_seed,
        sigma=sigma,
        freedom=freedom,
        paired=paired,
        seeded=seeded,
    )


def _answers(score: Score) -> Floats | None:
    """Return the correct answers (runs, n); None unless all runs store them."""
    stored = [read_per_image(details) for details in score.details]
    if score.per_image is None or any(answers is None for answers in stored):
        return None
    return np.stack([answers.fractions for answers in stored if answers is not None])


def _mean_power(
    points: float,
    *,
    true_variance: float,
    stated_variance: float,
    over_seeds: Sequence[float],
    freedoms: Sequence[int],
    level: float,
) -> float:
    """Return the power of Welch's test on two means.

    It is simulated if a variance is estimated from seeds. true_variance: variance over test images;
    stated_variance: the variance that the test assumes. over_seeds: variance of each mean over
    seeds; freedoms: its degrees of freedom, or 0 if it is assumed.
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
    variance, welch_terms = np.full(NUM_DRAWS, stated_variance), np.zeros(NUM_DRAWS)
    for variance_of_mean, freedom in zip(over_seeds, freedoms, strict=True):
        estimate = variance_of_mean * (
            draw.chisquare(freedom, NUM_DRAWS) / freedom if freedom else 1.0
        )
        variance += estimate
        welch_terms += estimate**2 / freedom if freedom else 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        p_values = 2 * stdtr(variance**2 / welch_terms, -abs(observed) / np.sqrt(variance))
    return float((p_values < level).mean())


def mcnemar_power(num_images: int, discordant: float, effect: float, level: float) -> float:
    """Return the power of McNemar's exact test.

    It is summed over all numbers of discordant images.

    discordant: probability that only one
    checkpoint is correct on an image, at least |effect|. effect: difference of the accuracies as a
    fraction.
    """
    from scipy.special import betainc, gammaln, xlog1py, xlogy

    effect = abs(effect)
    discordant = min(1.0, max(discordant, effect))
    if discordant == 0:
        return 0.0
    mean = num_images * discordant
    half_range = 8 * math.sqrt(mean) + 8
    counts = np.arange(
        max(1, int(mean - half_range)), min(num_images, int(mean + half_range)) + 1.0
    )
    concordant = num_images - counts
    logs = gammaln(num_images + 1) - gammaln(counts + 1) - gammaln(concordant + 1)
    logs += xlogy(counts, discordant) + xlog1py(concordant, -discordant)

    def tail(wins: Floats, probability: float) -> Floats:
        """Return the probability of at least `wins` wins for each count."""
        inside = np.minimum(wins, counts)
        probabilities: Floats = betainc(inside, counts - inside + 1, probability)
        return np.where(wins > counts, 0.0, probabilities)

    # smallest significant number of wins for each count (count + 1 if no number is)
    low, high = np.ceil(counts / 2), counts + 1
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        is_significant = 2 * tail(middle, 0.5) < level
        low, high = np.where(is_significant, low, middle), np.where(is_significant, middle, high)
    win = (1 + effect / discordant) / 2
    return float((np.exp(logs) * (tail(high, win) + tail(high, 1 - win))).sum())
