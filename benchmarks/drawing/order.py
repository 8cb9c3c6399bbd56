"""Order of results beside the paper's, and which differences are noise.

A difference counts as noise up to two standard errors: of shares of the same test images the paired
one, of others the binomial one; of a mean over images, that of their spread. Several runs would
add their own differences.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

from benchmarks.pages.differences import Score, are_paired, difference
from benchmarks.pages.entries import sample_of
from benchmarks.pages.records import Result


def share_of_tested(percent: float, results: Sequence[Result], metric: str) -> Score:
    """Return a share of the test images of records, in percent, or the mean of their shares."""
    return Score(mean=percent, sample=sample_of(results, metric))


def spread_over_images(edges: Sequence[float], counts: Sequence[float]) -> float:
    """Return the standard deviation of a histogram over its images."""
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    total = sum(counts)
    center = sum(m * c for m, c in zip(middles, counts, strict=True)) / total
    squares = sum(c * (m - center) ** 2 for m, c in zip(middles, counts, strict=True))
    return math.sqrt(squares / max(total - 1, 1))


def num_test_images(result: Result) -> int | None:
    """Return the number of test images of a result; None if its record does not say."""
    number = result.details.get("num_test")
    return number if isinstance(number, int) and number > 0 else None


def error_of(score: Score) -> float:
    """Return the standard error of a number over images; NaN if it is not known."""
    return score.sample.error(score.mean) if score.sample else math.nan


def noise_of(first: Score, second: Score) -> float:
    """Return two standard errors of the difference; without common images as if independent."""
    if first.sample and second.sample and are_paired(first.sample, second.sample):
        return 2 * difference(first, second, "").error
    return 2 * math.hypot(error_of(first), error_of(second))


def largest_noise(measured: Mapping[str, Score]) -> float:
    """Return two standard errors of the least certain difference."""
    return max(noise_of(a, b) for a, b in combinations(measured.values(), 2))


def order_words(measured: Mapping[str, Score]) -> str:
    """Return words on the order; `measured` is in the paper's, from the highest to the lowest."""
    if any(math.isnan(error_of(each)) for each in measured.values()):
        values = [each.mean for each in measured.values()]
        same = "as in the paper" if values == sorted(values, reverse=True) else "unlike the paper's"
        return f"the order is {same}; noise is not known, as records do not say how many images"
    as_in: list[tuple[str, str]] = []
    unlike: list[tuple[str, str]] = []
    pairs = [*combinations(measured, 2)]
    for high, low in pairs:
        difference = measured[high].mean - measured[low].mean
        if abs(difference) > noise_of(measured[high], measured[low]):
            (as_in if difference > 0 else unlike).append((high, low))
    if len(as_in) == len(pairs):
        return "the order is as in the paper, beyond noise"
    if not as_in and not unlike:
        what = "the difference is" if len(pairs) == 1 else "all differences are"
        return f"{what} within noise"
    parts = [f"as in the paper, {high} is above {low}" for high, low in as_in]
    parts += [f"unlike in the paper, {low} is above {high}" for high, low in unlike]
    rest = len(pairs) - len(as_in) - len(unlike)
    return "; ".join(parts) + ("; other differences are within noise" if rest else "")


def ranked(measured: Mapping[str, Score], digits: str) -> str:
    """Return names and numbers from the highest to the lowest; `digits` is a format such as .1f."""
    ordered = sorted(measured, key=lambda name: -measured[name].mean)
    return ", ".join(f"{name} {measured[name].mean:{digits}}" for name in ordered)
