"""The README of the reference results states the counts of a plain loop over its records."""

from itertools import combinations
from pathlib import Path

from scipy.stats import binomtest

from benchmarks.results.differences import LEVEL, holm
from benchmarks.results.records import read_results
from transfer.outcomes import read_per_image

RESULTS = Path(__file__).parents[3] / "results" / "reference"
TASKS = ("cifar10_knn", "cifar10_linear")


def test_readme_states_the_counts_of_significant_differences() -> None:
    right = {}
    for run in read_results(RESULTS).succeeded:
        answers, name = read_per_image(run.details), run.backbone.name
        if answers and name.startswith("cifar10-") and run.task in TASKS:
            right[run.task, name] = answers.fractions > 0.5

    def p_value(task: str, first: str, second: str) -> float:
        item, other = right[task, first], right[task, second]
        wins, losses = int((item & ~other).sum()), int((other & ~item).sum())
        return binomtest(wins, wins + losses).pvalue if wins + losses else 1.0

    def gain_p(task: str, name: str) -> float:
        is_better = right[task, name].sum() > right[task, "cifar10-random"].sum()
        return p_value(task, name, "cifar10-random") if is_better else 1.0

    trained = sorted({name for task, name in right if task == TASKS[1]} - {"cifar10-random"})
    pairs = [[p_value(task, *pair) for task in TASKS] for pair in combinations(trained, 2)]
    methods = [name for name in trained if name != "cifar10-supervised"]
    gains = [[gain_p(task, name) for task in TASKS] for name in methods]
    differing = sum(min(p_values) < LEVEL for p_values in pairs)
    better = sum(max(p_values) < LEVEL for p_values in gains)
    after = [holm(p for p_values in rows for p in p_values) for rows in (gains, pairs)]
    better_after = sum(map(all, zip(after[0][::2], after[0][1::2], strict=True)))
    differing_after = sum(map(any, zip(after[1][::2], after[1][1::2], strict=True)))
    text = " ".join((RESULTS / "README.md").read_text().split())
    assert f"{better} of {len(methods)} methods are better than random weights" in text
    assert f"{differing} of {len(pairs)} pairs differ" in text
    assert f"after Holm's correction, {better_after} and {differing_after} remain" in text
