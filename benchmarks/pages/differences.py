"""Tells if two numbers differ: by a test on the same images where records keep them, or by errors.

Both records ours, on the same test images: paired, by McNemar's exact test (Psychometrika 1947) for
shares of right images of one run each, else by the paired standard error over images or over
resampled test sets. Otherwise the two standard errors are taken as independent: of a share of n
images the binomial one, with the deviation from run to run. Errors that come from few seeds are
Student's, with Welch's degrees of freedom (Biometrika 1947). Every sentence of tables, figures and
page about a difference comes from here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.pages.run_deviations import run_deviation
from transfer.outcomes import read_per_image, read_resampled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from transfer.outcomes import PerImage

    Floats = NDArray[np.float64]

Word = Literal["reproduced", "undecided", "above", "below"]
LEVEL = 0.05
"""Probability of a difference where there is none, for one comparison or for all of a sentence."""
TWO_SIDED = 1.959964
"""Standard errors of a 95 % interval."""
NOT_A_NUMBER = "not a number"
"""Text of a metric of pre-training that is not finite, such as the loss of a diverged network."""
SIGNS: Mapping[str, str] = {
    "reproduced": "✓",
    "undecided": "?",
    "above": "▲",
    "below": "▼",
    "not judged": "–",
}
"""Signs of verdicts, and of numbers without one."""
SHARES = ("top1", "top5", "acc", "same_class", "mean_per_class")
"""Parts of the names of metrics that count right images, and so have a binomial error."""


@dataclass(frozen=True, eq=False)
class Sample:
    """The test images behind a number."""

    metric: str
    images: str = ""
    """Key of the very images; numbers of one key may be paired."""
    is_primary: bool = True
    """It is the task's main metric, for which records hold what is right."""
    details: tuple[Mapping[str, Any], ...] = ()
    """Details of the records of all runs."""
    num_images: int | None = None
    """Number of test images; None if it is not known."""
    stated_error: float | None = None
    """Standard error that a paper prints, in points."""

    @cached_property
    def per_image(self) -> "PerImage | None":
        """Return which images are right, the mean over the runs; None without it."""
        kept = self.details if self.is_primary else ()
        return _mean_over_runs([read_per_image(one) for one in kept])

    @cached_property
    def resampled(self) -> "Floats | None":
        """Return the metric (B,) on resampled test sets, the mean over the runs."""
        import numpy as np

        found = [read_resampled(one, self.metric) for one in self.details]
        each = [values for values in found if values is not None]
        return np.mean(each, axis=0) if each and len(each) == len(found) else None

    @cached_property  # every pair asks for it
    def pairing(self) -> object | None:
        """Return what numbers on the same images have in common; None without answers to each."""
        if not self.images:
            return None
        if (each := self.per_image) is not None:
            return self.images, self.metric, hash(each.labels.tobytes())
        return (self.images, self.metric) if self.resampled is not None else None

    @cached_property
    def exact(self) -> bool:
        """Return whether the number is a plain share of images that are right or wrong."""
        found = self.per_image
        return (
            found is not None
            and self.metric != "mean_per_class"
            and bool(((found.shares == 0) | (found.shares == 1)).all())
        )

    def error(self, percent: float) -> float:
        """Return the standard error over test images, in points; NaN if it is not known."""
        import numpy as np

        if self.stated_error is not None:
            return self.stated_error
        if (each := self.per_image) is not None:
            weights = each.weights(self.metric)
            center = weights @ each.shares
            return float(100 * np.sqrt(((weights * (each.shares - center)) ** 2).sum()))
        if (values := self.resampled) is not None:
            return float(values.std(ddof=1))
        if self.num_images and any(part in self.metric for part in SHARES):
            share = min(max(percent / 100, 0.0), 1.0)
            return 100 * math.sqrt(share * (1 - share) / self.num_images)
        return math.nan


def _mean_over_runs(found: "Sequence[PerImage | None]") -> "PerImage | None":
    import numpy as np

    from transfer.outcomes import PerImage

    each = [one for one in found if one is not None]
    if not each or len(each) < len(found):
        return None
    if any(not np.array_equal(one.labels, each[0].labels) for one in each):
        return None
    return PerImage(np.mean([one.shares for one in each], axis=0), each[0].labels)


@dataclass(frozen=True, kw_only=True)
class Score:
    """Mean over seeds, in percent, and its spread."""

    mean: float
    std: float = 0.0
    """Sample standard deviation; 0 for a single run."""
    runs: int = 1
    interval: float = 0.0
    """Half width of the 95 % interval over the trials of a single run; 0 without trials."""
    sample: Sample | None = field(default=None, compare=False)
    members: tuple["Score", ...] = field(default=(), compare=False)
    """Scores that this one is the mean of, each on its own test set; empty for a single task."""
    run_variance: float | None = None
    """Variance from run to run; None: from the seeds, the trials, or as it is stated."""

    @property
    def finite(self) -> bool:
        """Return whether the mean is a number that can be compared."""
        return math.isfinite(self.mean)

    @property
    def seed_variance(self) -> float:
        """Return the variance of the mean over several runs; 0 for a single one."""
        return self.std**2 / self.runs if self.runs > 1 else 0.0

    def text(self, decimals: int) -> str:
        """Return "71.2", or "71.2 ± 0.3" for several runs or trials."""
        if not self.finite:
            return NOT_A_NUMBER
        spread = self.std if self.runs > 1 else self.interval
        suffix = f" ± {spread:.{decimals}f}" if self.runs > 1 or spread else ""
        return f"{self.mean:.{decimals}f}{suffix}"


@dataclass(frozen=True)
class Difference:
    """One number minus another, in points."""

    points: float
    error: float
    """Standard error; NaN if it is not known."""
    p: float
    """Probability of so large a difference where there is none; NaN if it is not known."""
    freedom: float = math.inf
    """Degrees of freedom of the error."""

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval."""
        half = self.error * float(quantiles(self.freedom))
        return self.points - half, self.points + half

    @property
    def known(self) -> bool:
        """Return whether anything can be said about it."""
        return math.isfinite(self.points) and math.isfinite(self.error)

    @property
    def sure(self) -> bool:
        """Return whether it is beyond the noise, taken alone."""
        return self.p < LEVEL

    def verdict(self, metric: str = "") -> Word:
        """Return what the interval says of ours minus a published number."""
        low, high = (round(end, 6) for end in self.interval)
        if low > 0:
            return "above"
        if high < 0:
            return "below"
        return "reproduced" if max(-low, high) <= run_deviation(metric).reach else "undecided"

    def interval_text(self) -> str:
        """Return the interval in brackets, such as "[-0.4, +0.6]"."""
        low, high = self.interval
        return f"[{low:+.1f}, {high:+.1f}]"


def difference(first: Score, second: Score, task: str) -> Difference:
    """Return the first number minus the second, both of a task."""
    points, errors, p, freedom = (float(found[0][1]) for found in compare([first, second], task))
    return Difference(points, errors, p, freedom)


def gain(first: Score, second: Score, task: str) -> Score:
    """Return the first number minus the second as a number, with the errors of both."""
    over_images, _, _ = _variances([first, second], task)
    return Score(
        mean=first.mean - second.mean,
        sample=Sample("", stated_error=math.sqrt(over_images[0][1])),
        run_variance=_variance_over_runs(first, task) + _variance_over_runs(second, task),
    )


def compare(scores: Sequence[Score], task: str) -> tuple["Floats", "Floats", "Floats", "Floats"]:
    """Return differences, standard errors, probabilities and degrees of freedom.

    Each is (k, k), row minus column.
    """
    import numpy as np

    if scores and all(score.members for score in scores):
        return _compare_means(scores)
    means = np.array([score.mean for score in scores])
    points = means[:, None] - means
    over_images, over_runs, paired = _variances(scores, task)
    variances = over_images + over_runs
    of_seeds = np.array([score.seed_variance**2 / max(1, score.runs - 1) for score in scores])
    freedom = _freedom(variances, of_seeds[:, None] + of_seeds)
    errors = np.sqrt(variances)
    p = _two_sided(points, errors, freedom)
    for places in paired:
        exact = [i for i in places if scores[i].sample.exact and scores[i].runs == 1]  # type: ignore[union-attr]
        if len(exact) > 1:
            p[np.ix_(exact, exact)] = _mcnemar([scores[i] for i in exact])
    return points, errors, p, freedom


def _variances(scores: Sequence[Score], task: str) -> tuple["Floats", "Floats", list[list[int]]]:
    """Return the variances (k, k) of differences over images and over runs.

    Also the places of the scores that are compared image by image, those with each other together.
    """
    import numpy as np

    of_images = np.array([_variance_over_images(score) for score in scores])
    known = np.isfinite(of_images)
    if known.any():  # a number without an error has the same test set as the others
        of_images[~known] = of_images[known].mean()
    of_runs = np.array([_variance_over_runs(score, task) for score in scores])
    over_images, over_runs = of_images[:, None] + of_images, of_runs[:, None] + of_runs
    kinds: dict[object, list[int]] = {}
    for place, score in enumerate(scores):
        if (key := _pairing(score)) is not None:
            kinds.setdefault(key, []).append(place)
    paired = [places for places in kinds.values() if len(places) > 1]
    for places in paired:
        cell = np.ix_(places, places)
        seeds = np.array([scores[i].seed_variance for i in places])
        over_images[cell] = _paired_variances([scores[i] for i in places])
        over_runs[cell] = seeds[:, None] + seeds
    return over_images, over_runs, paired


def _compare_means(scores: Sequence[Score]) -> tuple["Floats", "Floats", "Floats", "Floats"]:
    """Compare means over the same tasks: their errors are independent."""
    import numpy as np

    columns = list(zip(*(score.members for score in scores), strict=True))
    found = [compare(column, "") for column in columns]
    points = np.mean([one[0] for one in found], axis=0)
    variances = np.array([one[1] ** 2 for one in found])
    freedom = _freedom(
        variances.sum(0), sum(v**2 / one[3] for v, one in zip(variances, found, strict=True))
    )
    errors = np.sqrt(variances.sum(0)) / len(found)
    return points, errors, _two_sided(points, errors, freedom), freedom


def _freedom(variances: "Floats", of_parts: "Floats") -> "Floats":
    """Return the degrees of freedom of sums, by Welch and Satterthwaite; inf of known variances.

    of_parts: sums of each estimated part's square over its degrees of freedom.
    """
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(of_parts > 0, variances**2 / of_parts, np.inf)


def quantiles(freedom: "Floats | float") -> Any:
    """Return half the width of 95 % intervals in standard errors."""
    from scipy.special import stdtrit

    return stdtrit(freedom, 1 - LEVEL / 2)


def _two_sided(points: "Floats", errors: "Floats", freedom: "Floats") -> "Floats":
    """Return the probability of so large a difference by normal or Student's errors."""
    import numpy as np
    from scipy.special import stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * stdtr(freedom, -np.abs(points) / errors)
    return np.where((points == 0) & np.isfinite(errors), 1.0, p)


def _variance_over_images(score: Score) -> float:
    """Return the variance of a number over test images; NaN if it is not known."""
    if score.members:
        return sum(map(_variance_over_images, score.members)) / len(score.members) ** 2
    return score.sample.error(score.mean) ** 2 if score.sample else math.nan


def _variance_over_runs(score: Score, task: str) -> float:
    """Return the variance over seeds, over a single run's trials, or as it is stated."""
    if score.run_variance is not None:
        return score.run_variance
    if score.members:
        of_members = (_variance_over_runs(one, "") for one in score.members)
        return sum(of_members) / len(score.members) ** 2
    trials = (score.interval / TWO_SIDED) ** 2
    return score.seed_variance or trials or run_deviation(task).points ** 2


def _pairing(score: Score) -> object | None:
    """Return what numbers have in common that are compared image by image; None for none."""
    return score.sample.pairing if score.sample is not None else None


def _paired_variances(scores: Sequence[Score]) -> "Floats":
    """Return the variance (k, k) of each difference over the images that all have in common."""
    import numpy as np

    samples = [score.sample for score in scores if score.sample]
    if samples[0].per_image is None:
        values = np.stack([one.resampled for one in samples if one.resampled is not None])
        covariance = np.cov(values)
        spread = np.diag(covariance)
        return np.maximum(spread[:, None] + spread - 2 * covariance, 0.0)
    weights = 100 * samples[0].per_image.weights(samples[0].metric)
    shares = np.stack([one.per_image.shares for one in samples if one.per_image])
    # the sum over images of (w (d - mean d))^2, d = a - b, written out in products of a and b
    squares = (shares * weights**2) @ shares.T
    own, sums, means = np.diag(squares), shares @ weights**2, shares @ weights / 100
    apart, mean = sums[:, None] - sums, means[:, None] - means
    found = own[:, None] + own - 2 * squares - 2 * mean * apart + mean**2 * (weights**2).sum()
    return np.asarray(np.maximum(found, 0.0))


def _mcnemar(scores: Sequence[Score]) -> "Floats":
    """Return the exact probabilities (k, k) of as unequal numbers of images that one alone has."""
    import numpy as np
    from scipy.special import betainc

    each = [score.sample.per_image for score in scores if score.sample]
    right = np.stack([one.shares for one in each if one is not None]).astype(np.float32)
    alone = np.rint(right @ (1 - right).T).astype(np.float64)
    both, fewer = alone + alone.T, np.minimum(alone, alone.T)
    tails = betainc(np.maximum(both - fewer, 1), fewer + 1, 0.5)  # of the binomial distribution
    return np.asarray(np.where(both > 0, np.minimum(1.0, 2 * tails), 1.0))


def how_compared(first: Score, second: Score, task: str) -> str:
    """Return the test that `compare` uses for two numbers, in words."""
    one, other = first.sample, second.sample
    if first.members and second.members:
        return f"mean of {len(first.members)} differences"
    if one and other and _pairing(first) is not None and _pairing(first) == _pairing(second):
        images = len(one.per_image.shares) if one.per_image else (one.num_images or 0)
        on = f" on the same {images:,} images" if images else " on the same images"
        if first.runs > 1 or second.runs > 1:
            return f"paired{on}, over {first.runs} and {second.runs} seeds"
        if one.exact and other.exact:
            return f"McNemar's exact test{on}"
        return f"paired{on}" if one.per_image else f"paired bootstrap{on}"
    runs = "seeds" if first.runs > 1 and second.runs > 1 else run_deviation(task).source
    return f"errors of both test sets, and from run to run ({runs})"


def holm(probabilities: Sequence[float]) -> list[bool]:
    """Return which differences are sure among all of them: Holm, Scand. J. Statistics 1979."""
    order = sorted(range(len(probabilities)), key=lambda i: (math.isnan(p := probabilities[i]), p))
    sure = [False] * len(probabilities)
    for rank, place in enumerate(order):
        if not probabilities[place] < LEVEL / (len(order) - rank):
            break
        sure[place] = True
    return sure
