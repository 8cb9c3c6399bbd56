"""Plan numbers of seeds: python -m benchmarks.power --name A B --points 0.5.

For each common task of two checkpoints, prints the smallest difference that its test images and
runs can detect, and the number of runs that detect a true difference of --points with a probability
of 80 %. It uses the records' answers and seeds, but never their observed difference. Decide the
number of runs before you add any.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.results.chosen_table import columns_of, rows_of
from benchmarks.results.contents import named_folders, read_contents, results_folders
from benchmarks.results.differences import (
    LEVEL,
    POWER,
    Score,
    image_variance,
    is_paired,
    run_deviation,
    with_errors,
)
from benchmarks.results.numbers import Number, main_numbers
from benchmarks.words import plural
from pretrain.running.command_line import OptionError, one_line_errors, parse, run_command
from pretrain.running.console import aligned
from transfer.outcomes import Floats, read_per_image
from transfer.record import SIGNED_METRICS
from transfer.tasks import TASKS
from transfer.tasks.task import Task

MAX_SEEDS = 1000
"""Maximum number of seeds."""
NUM_DRAWS = 20_000
"""Simulated experiments; simulated powers have an error below 0.35 points."""
COVERAGE = 0.9
"""Coverage of the interval of a standard deviation that few seeds give."""


@dataclass(frozen=True, kw_only=True)
class PowerOptions:
    """Print detectable differences of two checkpoints, and required seeds."""

    name: tuple[str, str]
    """Names of the two checkpoints."""
    points: float = 0.5
    """Smallest true difference in points that matters to you."""
    tasks: str = ""
    """Tasks, separated by commas, such as in1k_linear,voc07_svm@11point. Empty: all."""
    results: tuple[Path, ...] = (Path("results"),)
    """Folders of records."""
    with_reference: bool = False
    """Also read the suite's own results, results/reference of a checkout."""


@dataclass(frozen=True, kw_only=True)
class PowerModel:
    """Parameters of the power of one comparison, in points and percent.

    The power is the probability of p < level under the test of `differences.difference`, for a
    true difference that the caller states. It is never computed from the observed difference,
    since that estimate is biased (Hoenig and Heisey, The American Statistician 2001). The existing
    results only provide the nuisance parameters: the fraction of images that only one checkpoint
    classifies correctly, the variance over test images, and the standard deviation over seeds.

    - One run each, correct or wrong answers: McNemar's exact test, summed over the number of images
      that only one classifies correctly (Connor, Biometrics 1987, gives the approximation).
    - Means over seeds or classes: simulated differences and seed variances, Welch's test on each.
    - AP and mAP: the same, with the variance over 200 resampled test sets.
    """

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
    """Variance over test images that k seeds divide by k."""
    sigma: float = 0.0
    """Standard deviation of one checkpoint's number over seeds."""
    freedom: int = 0
    """Degrees of freedom of sigma; 0 if it is assumed."""
    paired: bool = True
    """Whether both use the same images; single runs then have no seed variance."""
    seeded: bool = True
    """Whether the seed changes the number; for kNN, it does not."""

    def power(self, points: float, runs: tuple[int, int], level: float = LEVEL) -> float:
        """Return the probability that a true difference gives p < level.

        It is simulated if a variance is estimated from seeds. runs: runs of each checkpoint.
        """
        from scipy.special import ndtr, ndtri, stdtr

        if max(runs) == 1 and self.discordant is not None and self.num_images:
            return mcnemar_power(self.num_images, self.discordant, points / 100, level)
        assumed = 0.0 if self.paired else self.sigma**2
        over_seeds = [self.sigma**2 / k if k > 1 else assumed for k in runs]
        # the variance over test images that the test assumes
        over_images = self.image_variance + self.answer_variance * sum(1 / k for k in runs) / 2
        if max(runs) == 1:
            error = math.sqrt(over_images + sum(over_seeds))
            critical = -ndtri(level / 2) * error
            if error == 0:
                return float(points != 0)
            return float(ndtr((points - critical) / error) + ndtr((-points - critical) / error))
        # the variance over seeds includes the variance of their answers
        error = math.sqrt(self.image_variance + sum(over_seeds))
        draw = np.random.default_rng(0)  # the same draws for every effect: power grows with it
        observed = points + error * draw.standard_normal(NUM_DRAWS)
        variance, welch_terms = np.full(NUM_DRAWS, over_images), np.zeros(NUM_DRAWS)
        for variance_of_mean, freedom in zip(over_seeds, (k - 1 for k in runs), strict=True):
            if freedom:
                estimate = variance_of_mean * draw.chisquare(freedom, NUM_DRAWS) / freedom
                variance += estimate
                welch_terms += estimate**2 / freedom
            else:
                variance += variance_of_mean
        with np.errstate(divide="ignore", invalid="ignore"):
            p_values = 2 * stdtr(variance**2 / welch_terms, -abs(observed) / np.sqrt(variance))
        return float((p_values < level).mean())

    def smallest(self) -> float:
        """Return the smallest difference in points that the runs detect with POWER."""
        from scipy.optimize import brentq

        if self.power(100, self.runs) < POWER:
            return math.inf
        root = brentq(lambda points: self.power(points, self.runs) - POWER, 0, 100, xtol=0.002)
        return float(root)

    def seeds_for(self, points: float, level: float) -> float:
        """Return the number of seeds that detect a difference with POWER.

        inf if no number suffices. At least two, since one seed would compare two single runs,
        unless the seed has no effect on the task.
        """
        if not self.seeded:
            return 1 if self.power(points, (1, 1), level) >= POWER else math.inf
        counts = range(2, MAX_SEEDS + 1)
        index = bisect_left(counts, POWER, key=lambda k: self.power(points, (k, k), level))
        return counts[index] if index < len(counts) else math.inf

    def seed_range(self, points: float, level: float) -> tuple[float, float]:
        """Return the numbers of seeds for both ends of the interval of sigma."""
        low, high = (replace(self, sigma=s).seeds_for(points, level) for s in self.sigmas)
        return low, high

    def smallest_of_images(self) -> float:
        """Return the smallest difference that any number of seeds detects."""
        from scipy.special import ndtri

        return float(ndtri(1 - LEVEL / 2) + ndtri(POWER)) * math.sqrt(self.image_variance)

    @property
    def sigmas(self) -> tuple[float, float]:
        """Return the confidence interval of sigma; a point if it is assumed."""
        from scipy.special import chdtri

        if not self.freedom:
            return self.sigma, self.sigma
        tails = np.array([0.5 - COVERAGE / 2, 0.5 + COVERAGE / 2])
        low, high = self.sigma * np.sqrt(self.freedom / chdtri(self.freedom, tails))
        return float(low), float(high)


def power_model(first: Score, second: Score, task: str, *, seeded: bool) -> PowerModel:
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
    answers = [a for score in scores if paired and (a := _answers(score)) is not None]
    discordant, per_seed = None, 0.0
    if len(answers) == 2 and first.per_image is not None:
        weights = first.per_image.weights(first.metric)
        if spread := [a.var(axis=0, ddof=1) for a in answers if len(a) > 1]:
            per_seed = 2e4 * float((weights**2 * np.mean(spread, axis=0)).sum())
        one_each = np.stack([a[0] for a in answers])
        if first.metric != "mean_per_class" and set(np.unique(one_each)) <= {0.0, 1.0}:
            discordant = float((one_each[0] != one_each[1]).mean())
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


def mcnemar_power(num_images: int, discordant: float, effect: float, level: float) -> float:
    """Return the power of McNemar's exact test, summed over numbers of discordant images.

    discordant: probability that only one checkpoint is correct on an image, at least |effect|.
    effect: difference of the accuracies as a fraction.
    """
    from scipy.stats import binom

    effect = abs(effect)
    discordant = min(1.0, max(discordant, effect))
    if discordant == 0:
        return 0.0
    mean = num_images * discordant
    half_range = 8 * math.sqrt(mean) + 8
    counts = np.arange(max(1, int(mean - half_range)), min(num_images, int(mean + half_range)) + 1)
    # largest number of wins that is not significant
    wins = binom.isf(level / 2, counts, 0.5)
    win = (1 + effect / discordant) / 2
    significant = binom.sf(wins, counts, win) + binom.sf(wins, counts, 1 - win)
    return float(binom.pmf(counts, num_images, discordant) @ significant)


class Row(NamedTuple):
    """One task: detectable differences and required numbers of runs."""

    key: str
    first: Number
    second: Number
    model: PowerModel
    smallest: float
    """Smallest difference in points that the present runs detect."""
    seeds: tuple[float, float]
    """Range of runs per checkpoint that detect --points on this task; inf if none does."""
    seeds_of_all: tuple[float, float]
    """The same with the level divided by the number of tasks."""

    @property
    def further_hours(self) -> float:
        """Return the hours of the further runs.

        Each is assumed to take as long as the present ones.
        """
        hours = 0.0
        for number in (self.first, self.second):
            seconds = [
                run.record.wall_s * int(run.details.get("num_processes", 1)) for run in number.runs
            ]
            further = max(0.0, self.seeds_of_all[1] - len(number.runs))
            hours += further * sum(seconds) / len(seconds) / 3600
        return hours


def rows_for(numbers: Sequence[Number], request: PowerOptions) -> list[Row]:
    """Return a row per task that both checkpoints have under one protocol.

    Raises OptionError without a common task.
    """
    scored = [n for n in main_numbers(numbers) if n.metric not in SIGNED_METRICS]
    backbones = rows_of(scored, request.name)
    if len(backbones) != 2:
        labels = ", ".join(backbones.values())
        raise OptionError(f"--name: expected two checkpoints, found {labels}")
    selected = [number for number in scored if number.backbone.identity in backbones]
    tasks = [task.strip() for task in request.tasks.split(",") if task.strip()]
    columns = columns_of(selected, tasks)
    pairs = [[c[b] for b in backbones] for c in columns.values() if len(c) == 2]
    if not pairs:
        raise OptionError(f"{' and '.join(request.name)} have no common task")
    rows = []
    for first, second in pairs:
        if first.score and second.score:
            key = first.runs[0].key
            # the task of a plugin that is not installed is assumed to have a seed
            seeded = TASKS[key].seeded if key in TASKS else Task.seeded
            model = power_model(first.score, second.score, first.task, seeded=seeded)
            levels = LEVEL, LEVEL / len(pairs)
            seeds = [model.seed_range(request.points, level) for level in levels]
            rows.append(Row(key, first, second, model, model.smallest(), *seeds))
    return rows


def text_of(rows: Sequence[Row], request: PowerOptions) -> str:
    """Return the table and notes on its columns."""
    together = f"seeds, {plural(len(rows), 'task')}"
    table = [["task", "images", "runs", "smallest", "seeds", together, "hours"]]
    for row in rows:
        runs = dict.fromkeys(str(len(number.runs)) for number in (row.first, row.second))
        table.append(
            [
                row.key,
                f"{row.model.num_images:,}" if row.model.num_images else "?",
                ", ".join(runs),
                f"{row.smallest:.2f}",
                *(_seed_words(seeds, row.model) for seeds in (row.seeds, row.seeds_of_all)),
                f"{row.further_hours:.2f}" if math.isfinite(row.seeds_of_all[1]) else "-",
            ]
        )
    return "\n".join([*aligned(table, right=range(1, len(table[0]))), "", *_notes(rows, request)])


def _seed_words(seeds: tuple[float, float], model: PowerModel) -> str:
    if not math.isfinite(seeds[0]):
        return "none"
    if not model.seeded:
        return "enough"
    low = f"{seeds[0]:.0f}"
    if seeds[0] == seeds[1]:
        return low if model.freedom else f"{low}?"
    return f"{low} to {seeds[1]:.0f}" if math.isfinite(seeds[1]) else f"{low} or more"


def _notes(rows: Sequence[Row], request: PowerOptions) -> list[str]:
    """Return notes on the columns, assumptions, and the cheapest runs."""
    effect = f"{request.points:g} point{'' if request.points == 1 else 's'}"
    percent = f"{100 * POWER:g} %"
    notes = [
        f"smallest: true difference that the present runs detect with a probability of {percent} "
        f"(p < {LEVEL}).",
        f"seeds: runs of each checkpoint that detect {effect} with {percent} on this task, and "
        f"for {plural(len(rows), 'task')} together (p < {LEVEL / len(rows):.2g}; sufficient for "
        "Holm's correction). hours: time of the further runs, if each takes as long as the present "
        "ones.",
        "The effect is --points, not the observed difference. Decide the number of runs, then run "
        "them all: adding runs until p is small finds differences that do not exist.",
        "Seeds repeat the evaluation of these two files (heads, drawn images, order), not their "
        "pre-training: a difference of files is not yet a difference of methods.",
    ]
    if any(row.seeds[0] != row.seeds[1] for row in rows):
        notes.append(
            "from to: the deviation is estimated from few seeds; the range corresponds to its "
            f"{100 * COVERAGE:g} % interval."
        )
    for row in rows:
        if row.model.seeded and not row.model.freedom:
            stated = run_deviation(row.first.task)
            notes.append(
                f"{row.key}: one run each, so the deviation over seeds is assumed (?): "
                f"{stated.points:g} points ({stated.source})."
            )
        if not math.isfinite(row.seeds[0]):
            floor = row.model.smallest_of_images() if row.model.seeded else row.smallest
            reason = "" if row.model.seeded else " (the seed has no effect)"
            notes.append(
                f"{row.key}: no number of seeds{reason} detects {effect} on these test images; the "
                f"smallest detectable difference is {floor:.2f}."
            )
    reached = [row for row in rows if math.isfinite(row.seeds_of_all[1])]
    further_runs = [
        f"{row.key} {row.seeds_of_all[1]:.0f}"
        for row in reached
        if row.seeds_of_all[1] > min(len(row.first.runs), len(row.second.runs))
    ]
    if further_runs:
        hours = sum(row.further_hours for row in reached)
        notes.append(
            f"cheapest runs with {percent} on each task where it is possible: "
            f"{', '.join(further_runs)} runs of each checkpoint, {hours:.2f} more hours."
        )
    elif reached:
        notes.append("The present runs suffice on each task where it is possible.")
    return notes


@one_line_errors(ValueError, OSError)
def main(args: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(PowerOptions, args, description=__doc__)
    if request.points <= 0:
        raise OptionError(f"--points {request.points:g}: expected a positive difference in points")
    folders = results_folders(request.results, with_reference=request.with_reference)
    with named_folders(folders):
        rows = rows_for(read_contents(*folders).numbers, request)
    print(text_of(rows, request))
    return 0


if __name__ == "__main__":
    run_command(main, only_prints=True)
