"""Tests of differences equal SciPy's and hand counts."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest, ttest_ind, ttest_rel
from scipy.stats import t as student_t

from benchmarks.power import PowerModel
from benchmarks.results.contents import read_contents
from benchmarks.results.differences import (
    Difference,
    Score,
    difference,
    gain,
    holm,
    how_compared,
    is_paired,
    mean_of_backbones,
    score_of,
    with_errors,
)
from transfer.outcomes import Floats, per_image, resampled


def score(*runs: NDArray[np.bool_], labels: NDArray[np.int64] | None = None) -> Score:
    """Return a checkpoint's score with metrics (seeds, B) on resampled test sets."""
    labels = np.zeros(len(runs[0]), np.int64) if labels is None else labels
    metric = "top1" if not labels.any() else "mean_per_class"
    values = [100 * float(run.mean()) for run in runs]
    details = tuple(per_image(run, labels) for run in runs)
    std = float(np.std(values, ddof=1)) if len(runs) > 1 else 0.0
    images: dict[str, Any] = {"metric": metric, "images": "test", "num_images": len(labels)}
    return Score(mean=float(np.mean(values)), std=std, runs=len(runs), details=details, **images)


def right(rng: np.random.Generator, share: float, n: int = 2000) -> NDArray[np.bool_]:
    return rng.random(n) < share


def test_one_run_each_is_compared_by_mcnemars_exact_test() -> None:
    rng = np.random.default_rng(0)
    a = right(rng, 0.6)
    b = np.where(rng.random(2000) < 0.1, right(rng, 0.4), a)
    result = difference(score(a), score(b), "any")
    way = "McNemar's exact test on the same 2,000 images"
    assert how_compared(score(a), score(b), "any") == way
    single = int((a & ~b).sum()), int((~a & b).sum())
    assert result.p == pytest.approx(binomtest(single[0], sum(single)).pvalue)
    assert result.points == pytest.approx(100 * (a.mean() - b.mean()))
    assert result.error == pytest.approx(100 * np.std(a.astype(float) - b) / 2000**0.5)
    assert difference(score(a), score(a), "any").p == 1
    # taken as independent, the same numbers would be far less certain
    apart = difference(score(a), Score(mean=100 * b.mean(), metric="top1"), "any")
    assert apart.error > 2 * result.error


def test_seeds_add_their_variance_to_that_over_images() -> None:
    rng = np.random.default_rng(1)
    a, b = ([right(rng, share) for _ in range(3)] for share in (0.6, 0.59))
    result = difference(score(*a), score(*b), "any")
    means = np.mean(a, axis=0), np.mean(b, axis=0)
    of_images = 100 * np.std(means[0] - means[1]) / 2000**0.5
    of_seeds = [np.var([100 * run.mean() for run in runs], ddof=1) / 3 for runs in (a, b)]
    assert result.error == pytest.approx(np.sqrt(of_images**2 + sum(of_seeds)))
    way = "paired on the same 2,000 images, over 3 and 3 seeds"
    assert how_compared(score(*a), score(*b), "any") == way
    first, second = (
        replace(score(*runs), mean=100 * mean.mean(), std=0.0, runs=1)
        for mean, runs in zip(means, (a, b), strict=True)
    )
    over_images = difference(first, second, "any")
    assert over_images.p == pytest.approx(ttest_rel(*means).pvalue, rel=0.02)


def test_a_mean_per_class_weighs_images_by_their_class() -> None:
    rng = np.random.default_rng(2)
    labels = np.repeat([0, 1], [1500, 500])
    a, b = right(rng, 0.7), right(rng, 0.65)
    result = difference(score(a, labels=labels), score(b, labels=labels), "any")
    classes = [100 * (a[labels == c].mean() - b[labels == c].mean()) for c in (0, 1)]
    errors = [100 * np.std(a[labels == c] - 1.0 * b[labels == c]) for c in (0, 1)]
    stratified = np.sqrt(errors[0] ** 2 / 1500 + errors[1] ** 2 / 500) / 2
    assert result.error == pytest.approx(stratified, rel=0.02)
    # the mean of the scores is what the record says; the classes must agree with it
    assert np.mean(classes) == pytest.approx(result.points, abs=abs(classes[0] - classes[1]))


def test_ap_is_compared_on_the_same_resampled_test_sets() -> None:
    rng = np.random.default_rng(3)
    common = rng.normal(0, 1.0, 200)
    values = [40 + common + rng.normal(0, 0.1, 200) for _ in range(2)]
    values[1] += 0.5
    a, b = (
        Score(mean=mean, metric="AP", images="test", details=(resampled({"AP": v}, 99),))
        for mean, v in zip((40.0, 40.5), values, strict=True)
    )
    result = difference(b, a, "coco_det")
    assert result.error == pytest.approx(np.std(values[1] - values[0], ddof=1), rel=1e-3)
    assert result.is_significant
    assert how_compared(b, a, "coco_det") == "paired bootstrap on the same images"


def resampled_score(metric: str, runs: Sequence[float], values: Floats) -> Score:
    """Return a checkpoint's score with metrics (seeds, B) on resampled test sets."""
    details = tuple(resampled({metric: ours}, 99) for ours in values)
    std = float(np.std(runs, ddof=1)) if len(runs) > 1 else 0.0
    images: dict[str, Any] = {"metric": metric, "images": "test", "details": details}
    return Score(mean=float(np.mean(runs)), std=std, runs=len(runs), **images)


@pytest.mark.parametrize(
    ("metric", "task"), [("AP", "coco_det"), ("mAP", "voc07_svm"), ("mIoU", "voc12_seg_fcn")]
)
@pytest.mark.parametrize("num_seeds", [(3, 2), (2, 2), (4, 3)])
def test_several_seeds_are_compared_as_by_a_plain_loop(
    metric: str, task: str, num_seeds: tuple[int, int]
) -> None:
    rng = np.random.default_rng(sum(num_seeds))
    common, num_sets = rng.normal(0, 1.5, 200), 200
    runs: list[list[float]] = []
    values: list[list[list[float]]] = []  # of each checkpoint, seed and resampled test set
    for center, count in zip((41.0, 39.5), num_seeds, strict=True):
        runs.append([center + float(rng.normal(0, 0.4)) for _ in range(count)])
        values.append(
            [[float(round(m + c + rng.normal(0, 0.5), 4)) for c in common] for m in runs[-1]]
        )
    scores = [
        resampled_score(metric, ours, np.array(sets))
        for ours, sets in zip(runs, values, strict=True)
    ]
    result = difference(scores[0], scores[1], task)

    means = [sum(ours) / len(ours) for ours in runs]
    points = means[0] - means[1]
    gaps = []
    for b in range(num_sets):
        a, second = (sum(sets[b] for sets in ours) / len(ours) for ours in values)
        gaps.append(a - second)
    center = sum(gaps) / num_sets
    variance = over_images = sum((gap - center) ** 2 for gap in gaps) / (num_sets - 1)
    weight = 0.0
    for ours, mean in zip(runs, means, strict=True):
        of_mean = sum((run - mean) ** 2 for run in ours) / (len(ours) - 1) / len(ours)
        variance += of_mean
        weight += of_mean**2 / (len(ours) - 1)
    student = student_t(variance**2 / weight)
    half = float(student.ppf(0.975)) * variance**0.5
    assert result.points == pytest.approx(points)
    assert result.error == pytest.approx(variance**0.5)
    assert result.interval == pytest.approx((points - half, points + half))
    assert result.p == pytest.approx(2 * float(student.sf(abs(points) / variance**0.5)))
    assert result.is_significant == (abs(points) > half)
    assert over_images < variance
    # the error of one checkpoint alone
    own_sets = [sum(sets[b] for sets in values[0]) / num_seeds[0] for b in range(num_sets)]
    error = scores[0].variance_over_images ** 0.5
    assert error == pytest.approx(statistics.stdev(own_sets))


def test_a_seed_without_resampled_sets_leaves_none_to_pair() -> None:
    sets = np.random.default_rng(0).normal(40, 1, (2, 200))
    details: tuple[dict[str, Any], ...] = (
        resampled({"AP": sets[0]}, 99),
        {},
        resampled({"AP": sets[1]}, 99),
    )
    score = Score(mean=40.0, metric="AP", images="test", details=details)
    assert score.resampled is None
    assert score.pairing is None


def test_other_images_are_never_paired() -> None:
    rng = np.random.default_rng(4)
    a, b = score(right(rng, 0.6)), score(right(rng, 0.6, 1000))
    binomial = [
        100 * np.sqrt(m * (1 - m) / n) for m, n in ((a.mean / 100, 2e3), (b.mean / 100, 1e3))
    ]
    result = difference(a, b, "in1k_linear")
    assert result.error == pytest.approx(np.sqrt(np.square(binomial).sum() + 2 * 0.1**2))


def test_a_score_without_an_error_has_the_mean_error_of_its_column() -> None:
    expected = [Score(mean=50.0, metric="AP", stated_error=error) for error in (0.3, 0.5)]
    *_, unknown = with_errors([*expected, Score(mean=50.0, metric="AP")])
    assert unknown.variance_over_images == pytest.approx((0.3**2 + 0.5**2) / 2)
    means = [Score(mean=50.0, members=(item,)) for item in (*expected, Score(mean=50.0))]
    assert with_errors(means)[2].variance_over_images == pytest.approx(0.17)


def test_verdict_follows_from_interval_and_holm_levels() -> None:
    cases = ((0.2, 0.3), (0.2, 0.5), (3.0, 0.5), (-1.2, 0.3))
    result = [Difference(points, error, 1.0).verdict() for points, error in cases]
    assert result == ["reproduced", "inconclusive", "above", "below"]
    # 0.01 < 0.05 / 4, 0.014 < 0.05 / 3, 0.03 > 0.05 / 2: the rest is not sure, whatever it is
    assert holm([0.03, 0.01, float("nan"), 0.014]) == [False, True, False, True]


def test_a_paper_with_our_test_set_and_no_known_error_has_ours() -> None:
    values = np.random.default_rng(7).normal(40, 0.6, 200)
    ours = Score(mean=40.0, metric="AP", images="t", details=(resampled({"AP": values}, 9),))
    result = difference(ours, Score(mean=40.3, metric="AP"), "coco_det")
    actual = np.std(values, ddof=1)
    assert result.error == pytest.approx(np.sqrt(2 * actual**2 + 2 * 0.18**2), rel=1e-3)
    assert result.verdict() == "inconclusive"


def test_deviations_of_few_seeds_are_students_with_welchs_freedom() -> None:
    rng = np.random.default_rng(4)
    runs = [60 + rng.normal(size=3), 58 + 2 * rng.normal(size=2)]
    exact: dict[str, Any] = {"metric": "top1", "stated_error": 0.0}  # all images there are
    scores = [Score(mean=r.mean(), std=r.std(ddof=1), runs=len(r), **exact) for r in runs]
    result = difference(scores[0], scores[1], "any")
    expected = ttest_ind(*runs, equal_var=False)
    assert result.p == pytest.approx(expected.pvalue)
    assert result.interval == pytest.approx(tuple(expected.confidence_interval()))
    reference = difference(scores[0], Score(mean=58, run_variance=1e6, **exact), "any")
    assert reference.interval[1] == pytest.approx(
        reference.points + 1.959964 * reference.error, rel=1e-6
    )


def test_a_gain_has_the_deviations_of_two_runs() -> None:
    rng = np.random.default_rng(5)
    a, b = right(rng, 0.6), right(rng, 0.58)
    ours = gain(score(a), score(b), "voc07_svm")
    over_images = difference(score(a), score(b), "voc07_svm").error
    paper = Score(mean=2.0, metric="top1", run_variance=2 * 0.4**2)
    result = difference(ours, paper, "voc07_svm")
    assert result.points == pytest.approx(100 * (a.mean() - b.mean()) - 2.0)
    assert result.error == pytest.approx(np.sqrt(2 * over_images**2 + 4 * 0.4**2))


def test_smallest_difference_is_found_with_a_power_of_80_percent() -> None:
    result = Difference(0.1, 0.5, 0.8).smallest
    model = PowerModel(image_variance=0.25)
    assert model.power(result, (1, 1)) == pytest.approx(0.8, abs=1e-4)
    few = Difference(0.1, 0.5, 0.8, freedom=4).smallest
    assert few == pytest.approx(0.5 * (2.7764 + 0.9410), rel=1e-4)


def test_networks_of_different_input_sizes_are_paired() -> None:
    results = read_contents(Path(__file__).parents[3] / "results" / "reference")
    scores = [
        number.score
        for number in results.numbers
        if number.backbone.name in ("lite0-imagenet", "lite2-imagenet")
        and (number.task, number.metric) == ("cifar10_knn", "top1")
    ]
    first, second = (score for score in scores if score is not None)
    assert first.images
    assert is_paired(first, second)


def one_task(correct: Sequence[int], images: str = "t", metric: str = "top1") -> Score:
    """A score of answers that are correct (1) or not, on images of two classes."""
    labels = np.repeat([0, 1], [len(correct) // 4, len(correct) - len(correct) // 4])
    answers = np.array(correct, dtype=bool)
    details = (per_image(answers, labels),)
    mean = 100 * answers.mean()
    return Score(mean=mean, metric=metric, images=images, details=details, task="cifar10_knn")


def test_a_mean_over_tasks_on_the_same_images_is_no_more_precise_than_one_of_them() -> None:
    rng = np.random.default_rng(3)
    a, b = ([int(x) for x in rng.random(400) < share] for share in (0.6, 0.5))
    single = difference(one_task(a), one_task(b), "cifar10_knn")
    means = [Score(mean=0.0, members=(one_task(answers), one_task(answers))) for answers in (a, b)]
    assert difference(means[0], means[1], "").error == pytest.approx(single.error)
    others = [
        Score(mean=0.0, members=(one_task(answers), one_task(answers, "other")))
        for answers in (a, b)
    ]
    assert difference(others[0], others[1], "").error == pytest.approx(single.error / np.sqrt(2))


def test_a_mean_over_tasks_on_the_same_images_has_the_freedom_of_one_of_them() -> None:
    ours, theirs = (
        replace(score_of(values), images="t", stated_error=0.0)
        for values in ([70.0, 71.0, 72.0], [67.0, 68.0, 69.0])
    )
    single = difference(ours, theirs, "")
    means = [Score(mean=0.0, members=(item, item)) for item in (ours, theirs)]
    assert difference(means[0], means[1], "").freedom == pytest.approx(single.freedom)


def test_members_of_a_mean_have_the_deviation_of_their_task() -> None:
    one = Score(mean=80.0, stated_error=0.0, task="voc12_seg_linear")
    mean = Score(mean=80.0, members=(one,))
    assert difference(mean, mean, "").error == pytest.approx(np.sqrt(2) * 1.0)


def test_images_of_a_mean_over_classes_vary_within_their_classes() -> None:
    """One class is always right, the other one always wrong: nothing varies."""
    score = one_task([1] * 100 + [0] * 300, metric="mean_per_class")
    assert score.variance_over_images == 0
    assert replace(score, metric="top1").variance_over_images > 0


def test_a_gain_keeps_the_degrees_of_freedom_of_its_seeds() -> None:
    first, second = (
        score_of(values, metric="top1", stated_error=0.0)
        for values in ([70.0, 71.0, 72.0], [67.0, 68.0, 69.0])
    )
    expected = difference(first, second, "in1k_linear")
    result = difference(
        gain(first, second, "in1k_linear"), Score(mean=0.0, stated_error=0.0, run_variance=0.0), ""
    )
    assert result.half_interval == pytest.approx(expected.half_interval)


def test_a_mean_over_backbones_keeps_its_error_over_images() -> None:
    scores = [one_task([1, 0] * 100), one_task([1, 1, 1, 0] * 50)]
    mean = mean_of_backbones(scores)
    variance = np.mean([score.variance_over_images for score in scores])
    assert mean.variance_over_images == pytest.approx(variance)
    assert (mean.runs, mean.metric) == (2, "top1")
    assert mean_of_backbones(scores[:1]) is scores[0]
