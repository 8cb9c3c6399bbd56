"""Decide whether two scores differ, and whether a published number is reproduced.

Two of our scores on the same test images are compared image by image: accuracies of one run each by
McNemar's exact test (Psychometrika 1947), others by the paired standard error over images or over
resampled test sets. In all other cases the two standard errors are independent. They combine the
binomial error of an accuracy on n images and the run-to-run deviation. Errors estimated from few
seeds follow Student's distribution with Welch's degrees of freedom (Biometrika 1947). Tables,
figures and the report take all their differences from this module.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

import numpy as np

from transfer.outcomes import Floats, PerImage, read_per_image, read_resampled

Word = Literal["reproduced", "inconclusive", "above", "below"]
LEVEL = 0.05
"""Significance level, of one comparison or of all comparisons of a sentence."""
POWER = 0.8
"""Probability with which a difference should be found."""
TWO_SIDED = 1.959964
"""Standard errors of a 95 % interval."""
NOT_A_NUMBER = "not a number"
"""Text of a metric that is not finite, as after divergence."""
SIGNS: Mapping[str, str] = {
    "reproduced": "✓",
    "inconclusive": "?",
    "above": "▲",
    "below": "▼",
    "no verdict": "–",
}
"""Signs of verdicts, and of numbers without one."""
SHARES = ("top1", "top5", "acc", "same_class", "mean_per_class")
"""Parts of the names of metrics that count correct images (binomial error)."""


class RunDeviation(NamedTuple):
    """Run-to-run standard deviation of a protocol's number, in points, and its source."""

    points: float
    source: str
    max_distance: float = 1.0
    """The interval of a reproduced number reaches at most this far from 0, in points."""

    def line(self, label: str) -> str:
        """Return the deviation as an entry of a list."""
        return f"- {label}: {self.points:g} run-to-run; {self.source}."


COCO = RunDeviation(0.18, "re-runs of the public recipes differ by 0.2 to 0.3")
DEFAULT = RunDeviation(
    0.3, "not published; assumed to be slightly above the deviation of ImageNet's probe"
)
RUN_DEVIATIONS = {
    "in1k_linear": RunDeviation(0.1, "re-runs of MoCo v2 differ by 0.1 to 0.2"),
    "voc0712_det_c4": RunDeviation(0.3, "0.2 to 0.4 over MoCo's five runs"),
    **dict.fromkeys(("coco_det", "coco_insseg", "coco_keypoint"), COCO),
    "voc07_svm": RunDeviation(0.4, "re-implementations of one protocol differ by 0.6"),
    "voc12_seg_fcn": RunDeviation(0.4, "re-runs are estimated to differ by 0.6"),
    "voc12_seg_linear": RunDeviation(
        1.0, "implementations of DINOv2's protocol differ by a point on equal weights", 3.0
    ),
    "head_entropy_bits": RunDeviation(0.1, "the paper says close to; in bits, not points", 0.5),
}
"""Deviations by task id, or by metric if not in percent.

All other tasks have DEFAULT.
"""


def run_deviation(task: str) -> RunDeviation:
    """Return the run-to-run deviation of a task or metric."""
    return RUN_DEVIATIONS.get(task, DEFAULT)


@dataclass(frozen=True, kw_only=True, eq=False)
class Score:
    """Mean over seeds in percent, its deviation, and its test images."""

    mean: float
    std: float = 0.0
    """Sample standard deviation over runs; 0 for a single run."""
    runs: int = 1
    interval: float = 0.0
    """Half width of the 95 % interval over trials; 0 without trials."""
    metric: str = ""
    images: str = ""
    """Key of the test images. Scores with equal keys can be paired."""
    is_primary: bool = True
    """It is the main metric, for which records store correct images."""
    details: tuple[Mapping[str, Any], ...] = ()
    """Details of the records of all runs."""
    num_images: int | None = None
    """Number of test images; None if it is not known."""
    stated_error: float | None = None
    """Printed standard error in points; 0: run-to-run deviation only."""
    members: tuple["Score", ...] = ()
    """Scores that are averaged; empty for one task."""
    task: str = ""
    """Task id of a member."""
    run_variance: float | None = None
    """Run-to-run variance; None: from seeds, trials or the task's deviation."""
    run_freedom: float = math.inf
    """Degrees of freedom of `run_variance`."""

    def text(self, decimals: int) -> str:
        """Return "71.2", or "71.2 ± 0.3" for several runs or trials."""
        if not self.finite:
            return NOT_A_NUMBER
        spread = self.std if self.runs > 1 else self.interval
        suffix = f" ± {spread:.{decimals}f}" if self.runs > 1 or spread else ""
        return f"{self.mean:.{decimals}f}{suffix}"

    @property
    def finite(self) -> bool:
        """Return whether the mean is a number that can be compared."""
        return math.isfinite(self.mean)

    @property
    def seed_variance(self) -> float:
        """Return the variance of the mean over runs; 0 for one."""
        return self.std**2 / self.runs if self.runs > 1 else 0.0

    @cached_property
    def per_image(self) -> PerImage | None:
        """Return which images are correct, averaged over runs.

        None unless all runs store it.
        """
        stored = [read_per_image(details) for details in self.details if self.is_primary]
        answers = [answer for answer in stored if answer is not None]
        have_labels = all(np.array_equal(a.labels, answers[0].labels) for a in answers)
        if not answers or len(answers) < len(stored) or not have_labels:
            return None
        fractions = np.mean([answer.fractions for answer in answers], axis=0)
        return PerImage(fractions, answers[0].labels)

    @cached_property
    def resampled(self) -> Floats | None:
        """Return the metric (B,) on resampled test sets.

        None unless all runs store it.
        """
        stored = [read_resampled(details, self.metric) for details in self.details]
        values = [value for value in stored if value is not None]
        return np.mean(values, axis=0) if values and len(values) == len(stored) else None

    @cached_property
    def pairing(self) -> object | None:
        """Return a key: scores with equal keys are compared image by image.

        None if the score cannot be paired.
        """
        if not self.images:
            return None
        if self.per_image is not None:
            return self.images, self.metric, hash(self.per_image.labels.tobytes())
        return (self.images, self.metric) if self.resampled is not None else None

    @cached_property
    def is_exact(self) -> bool:
        """Return whether it is the plain accuracy of one run."""
        if self.per_image is None or self.runs > 1 or self.metric == "mean_per_class":
            return False
        return bool(np.isin(self.per_image.fractions, (0, 1)).all())

    @cached_property
    def variance_over_images(self) -> float:
        """Return the variance over test images; NaN if it is not known."""
        if self.members:
            errors = [math.sqrt(member.variance_over_images) for member in self.members]
            return sum(e**2 for e in self.with_shared_images(errors)) / len(errors) ** 2
        if self.stated_error is not None:
            return self.stated_error**2
        if self.per_image is not None:
            return _variance_over_images(self.per_image.fractions, self)
        if self.resampled is not None:
            return float(self.resampled.var(ddof=1))
        if self.num_images and any(name in self.metric for name in SHARES):
            fraction = min(max(self.mean / 100, 0.0), 1.0)
            return 1e4 * fraction * (1 - fraction) / self.num_images
        return math.nan

    def variance_over_runs(self, task: str) -> float:
        """Return the variance over seeds, over trials, or of the task."""
        if self.run_variance is not None:
            return self.run_variance
        if self.members:
            return sum(m.variance_over_runs(m.task) for m in self.members) / len(self.members) ** 2
        trials = (self.interval / TWO_SIDED) ** 2
        return self.seed_variance or trials or run_deviation(task).points ** 2

    @property
    def seed_terms(self) -> float:
        """Return the sum of squared run variances over their degrees of freedom, for `_welch`."""
        given = (self.run_variance or 0.0) ** 2 / self.run_freedom
        return given + self.seed_variance**2 / max(1, self.runs - 1)

    def with_shared_images(self, errors: Sequence[float]) -> list[float]:
        """Return the members' errors, those on the same test images added.

        Their errors are not independent. The sum is the largest possible error of a sum.
        """
        sums: dict[str, float] = {}
        for index, (member, error) in enumerate(zip(self.members, errors, strict=True)):
            key = member.images or str(index)
            sums[key] = sums.get(key, 0.0) + error
        return [*sums.values()]


def score_of(values: Sequence[float], **fields: Any) -> Score:
    """Return the mean and standard deviation of one or more values."""
    mean = fmean(values)
    spread = stdev(values) if len(values) > 1 and math.isfinite(mean) else 0.0
    return Score(mean=mean, std=spread, runs=len(values), **fields)


class Difference(NamedTuple):
    """One number minus another, in points."""

    points: float
    error: float
    """Standard error; NaN if it is not known."""
    p: float
    """p-value; NaN if it is not known."""
    freedom: float = math.inf
    """Degrees of freedom of the error."""

    @property
    def half_interval(self) -> float:
        """Return half the width of the 95 % interval."""
        from scipy.special import stdtrit

        return self.error * float(stdtrit(self.freedom, 1 - LEVEL / 2))

    @property
    def smallest(self) -> float:
        """Return the true difference that is detected with probability POWER.

        Errors are assumed to be normal.
        """
        from scipy.special import stdtrit

        return self.half_interval + self.error * float(stdtrit(self.freedom, POWER))

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval."""
        half = self.half_interval
        return self.points - half, self.points + half

    @property
    def is_known(self) -> bool:
        """Return whether the difference and its error are known."""
        return math.isfinite(self.points) and math.isfinite(self.error)

    @property
    def is_significant(self) -> bool:
        """Return whether it is significant without correction."""
        return self.p < LEVEL

    def verdict(self, key: str = "") -> Word:
        """Return the verdict on our number minus a published one.

        key: task or metric in RUN_DEVIATIONS.
        """
        low, high = (round(end, 6) for end in self.interval)
        if low > 0:
            return "above"
        if high < 0:
            return "below"
        is_close = max(-low, high) <= run_deviation(key).max_distance
        return "reproduced" if is_close else "inconclusive"

    def interval_text(self) -> str:
        """Return the interval in brackets, such as "[-0.4, +0.6]"; a dash if unknown."""
        low, high = self.interval
        return f"[{low:+.1f}, {high:+.1f}]" if self.is_known else "–"


def difference(first: Score, second: Score, task: str) -> Difference:
    """Return the first score minus the second, by the most powerful test."""
    if first.members and second.members:  # means over the same tasks
        differences = [
            difference(first_member, second_member, first_member.task)
            for first_member, second_member in zip(first.members, second.members, strict=True)
        ]
        points = fmean(single.points for single in differences)
        variance = sum(e**2 for e in first.with_shared_images([d.error for d in differences]))
        scaled = first.with_shared_images([d.error / d.freedom**0.25 for d in differences])
        freedom = _welch(variance, sum(e**4 for e in scaled))
        error = math.sqrt(variance) / len(differences)
        return Difference(points, error, _p_value(points, error, freedom), freedom)
    points = first.mean - second.mean
    scores = (first, second)
    variance = image_variance(first, second)
    if is_paired(first, second):
        variance += sum(score.seed_variance for score in scores)
    else:
        variance += sum(score.variance_over_runs(task) for score in scores)
    freedom = _welch(variance, sum(score.seed_terms for score in scores))
    error = math.sqrt(variance)
    answers = _answer_differences(first, second) if is_paired(first, second) else None
    if answers is not None and first.is_exact and second.is_exact:
        p = _mcnemar(answers)
    else:
        p = _p_value(points, error, freedom)
    return Difference(points, error, p, freedom)


def is_paired(first: Score, second: Score) -> bool:
    """Return whether two numbers are compared image by image."""
    return first.pairing is not None and first.pairing == second.pairing


def gain(first: Score, second: Score, task: str) -> Score:
    """Return the difference as a score, with both error variances added."""
    run_variance = first.variance_over_runs(task) + second.variance_over_runs(task)
    return Score(
        mean=first.mean - second.mean,
        stated_error=math.sqrt(image_variance(first, second)),
        run_variance=run_variance,
        run_freedom=_welch(run_variance, first.seed_terms + second.seed_terms),
    )


def mean_of_backbones(scores: Sequence[Score]) -> Score:
    """Return the mean over backbones of one recipe, which share the test images.

    Its error over images is at most the mean of their errors.
    """
    first = scores[0]
    if len(scores) == 1:
        return first
    variance = fmean(score.variance_over_images for score in scores)
    return score_of(
        [score.mean for score in scores],
        metric=first.metric,
        num_images=first.num_images,
        stated_error=None if math.isnan(variance) else math.sqrt(variance),
    )


def with_errors(scores: Sequence[Score]) -> list[Score]:
    """Fill in unknown errors over images with the column's mean.

    All scores of a column have the same test set. `difference` does the same for two scores.
    """
    if scores and all(score.members for score in scores):
        columns = zip(*(score.members for score in scores), strict=True)
        rows = zip(*(with_errors(column) for column in columns), strict=True)
        return [replace(s, members=tuple(row)) for s, row in zip(scores, rows, strict=True)]
    variances = [v for score in scores if not math.isnan(v := score.variance_over_images)]
    if not variances or len(variances) == len(scores):
        return [*scores]
    error = math.sqrt(fmean(variances))
    return [
        replace(score, stated_error=error) if math.isnan(score.variance_over_images) else score
        for score in scores
    ]


def image_variance(first: Score, second: Score) -> float:
    """Return the variance of the difference over test images, in points squared.

    If one of two unpaired scores has no known variance, it gets the variance of the second one.
    """
    if is_paired(first, second):
        differences = _answer_differences(first, second)
        if differences is not None and first.per_image is not None:
            return _variance_over_images(differences, first)
        values = [score.resampled for score in (first, second) if score.resampled is not None]
        return float(np.var(values[0] - values[1], ddof=1))
    scores = [first, second]
    if first.metric == "mean_per_class":  # binomial errors ignore the sizes of the classes
        scores = [score for score in scores if score.per_image is not None] or scores
    known = [v for score in scores if not math.isnan(v := score.variance_over_images)]
    return 2 * fmean(known) if known else math.nan


def _welch(variance: float, of_parts: float) -> float:
    """Return the degrees of freedom of a sum (Welch and Satterthwaite).

    of_parts: sum of each estimated term's square over its degrees of freedom. inf if no term is
    estimated.
    """
    return variance**2 / of_parts if of_parts > 0 else math.inf


def _p_value(points: float, error: float, freedom: float) -> float:
    """Return the two-sided p-value by normal or Student's errors."""
    from scipy.special import stdtr

    if points == 0 and math.isfinite(error):
        return 1.0
    if error == 0:
        return 0.0
    return float(2 * stdtr(freedom, -abs(points) / error))


def _variance_over_images(values: Floats, score: Score) -> float:
    """Return the variance of a mean over the images of a score, in points squared.

    values (N,): shares of correct answers, or their differences. For a mean over classes, images
    vary within their classes only, since the number of images of a class is fixed.
    """
    assert score.per_image is not None
    weights, labels = score.per_image.weights(score.metric), score.per_image.labels
    centers: Floats = np.full(len(values), weights @ values)
    if score.metric == "mean_per_class":
        _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
        centers = (np.bincount(classes, weights=values) / counts)[classes]
    return float(1e4 * ((weights * (values - centers)) ** 2).sum())


def _answer_differences(first: Score, second: Score) -> Floats | None:
    """Return the differences of correct answers (N,); None if they are not stored."""
    if first.per_image is None or second.per_image is None:
        return None
    return first.per_image.fractions - second.per_image.fractions


def _mcnemar(differences: Floats) -> float:
    """Return the exact p-value of McNemar's test; the differences are -1, 0 or 1."""
    from scipy.special import betainc

    low, high = sorted((np.count_nonzero(differences > 0), np.count_nonzero(differences < 0)))
    # tail of the binomial distribution
    return min(1.0, 2 * float(betainc(high, low + 1, 0.5))) if high else 1.0


def how_compared(first: Score, second: Score, task: str) -> str:
    """Describe the test that `difference` uses for two scores."""
    if first.members and second.members:
        return f"mean of {len(first.members)} differences"
    if not is_paired(first, second):
        source = "seeds" if min(first.runs, second.runs) > 1 else run_deviation(task).source
        return f"errors of both test sets and run-to-run deviation ({source})"
    images = len(first.per_image.fractions) if first.per_image else first.num_images
    on = f"on the same {images:,} images" if images else "on the same images"
    if max(first.runs, second.runs) > 1:
        return f"paired {on}, over {first.runs} and {second.runs} seeds"
    if first.is_exact and second.is_exact:
        return f"McNemar's exact test {on}"
    return f"paired {on}" if first.per_image else f"paired bootstrap {on}"


def holm(p_values: Iterable[float]) -> list[bool]:
    """Return which differences are significant among all: Holm, Scand. J. Statistics 1979.

    It is applied to the columns of a table for a paper (tables.py), and to all tasks of two
    checkpoints (report_parts/compare.py).
    """
    values = list(p_values)
    order = sorted(range(len(values)), key=lambda i: (math.isnan(values[i]), values[i]))
    significant = [False] * len(values)
    for rank, index in enumerate(order):
        if not values[index] < LEVEL / (len(order) - rank):
            break
        significant[index] = True
    return significant
