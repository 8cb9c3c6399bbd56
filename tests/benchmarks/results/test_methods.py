"""The methods page counts differences like a plain loop."""

import re
from itertools import combinations
from pathlib import Path

import pytest
from scipy.stats import binomtest

from benchmarks.results.contents import read_contents
from benchmarks.results.overview import method_page
from benchmarks.results.records import read_results
from benchmarks.results.tables import markdown
from tests.synthetic_records import page, record
from transfer.outcomes import read_per_image

RESULTS = Path(__file__).parents[3] / "results" / "reference"
COLUMNS = ("cifar10_knn", "cifar10_linear")


@pytest.fixture(scope="module")
def counts() -> dict[str, tuple[int, ...]]:
    """Return the page's counts of differing pairs and better methods."""
    text = markdown(method_page(read_contents(RESULTS).numbers, ""))
    start = "cifar10_knn top1, cifar10_linear top1: "
    (pairs,) = re.findall(rf"{start}(\d+) of (\d+) pairs.*; (\d+) after Holm", text)
    (better,) = re.findall(rf"{start}(\d+) of (\d+) backbones.*; (\d+) after Holm", text)
    return {"pairs": tuple(map(int, pairs)), "better": tuple(map(int, better))}


def test_counts_of_differences_are_those_of_a_plain_loop(
    counts: dict[str, tuple[int, ...]],
) -> None:
    right = {}
    for result in read_results(RESULTS).succeeded:
        per_image = read_per_image(result.details)
        name = result.backbone.name
        if per_image and name.startswith("cifar10-") and result.task in COLUMNS:
            right[result.task, name] = per_image.fractions > 0.5
    names = sorted({name for task, name in right if task == COLUMNS[1]})

    def p_value(task: str, first: str, second: str) -> float:
        item, another = right[task, first], right[task, second]
        single = int((item & ~another).sum()), int((another & ~item).sum())
        return binomtest(single[0], sum(single)).pvalue if sum(single) else 1.0

    trained = [name for name in names if name != "cifar10-random"]
    differing = [
        any(p_value(task, *pair) < 0.05 for task in COLUMNS) for pair in combinations(trained, 2)
    ]
    assert counts["pairs"][:2] == (sum(differing), len(differing))
    better = [
        all(
            p_value(task, name, "cifar10-random") < 0.05
            and right[task, name].sum() > right[task, "cifar10-random"].sum()
            for task in COLUMNS
        )
        for name in trained
        if name != "cifar10-supervised"
    ]
    assert counts["better"][:2] == (sum(better), len(better))


def test_the_readme_of_results_quotes_the_counts_of_the_page(
    counts: dict[str, tuple[int, ...]],
) -> None:
    text = " ".join((RESULTS / "README.md").read_text().split())
    differing, pairs, differing_after_holm = counts["pairs"]
    better, methods, better_after_holm = counts["better"]
    assert f"{better} of {methods} methods" in text
    assert f"{differing} of {pairs} pairs" in text
    assert f"after Holm's correction, {better_after_holm} and {differing_after_holm}" in text


def test_a_column_without_known_errors_is_not_counted(tmp_path: Path) -> None:
    for score, method in enumerate(("moco", "simclr", "byol")):
        made_by = {"method": method, "recipe": f"{method}/small", "epochs": 1, "data": "cifar10"}
        cell = {"task": "cifar10_view_statistics", "metric": "mean_cosine", "made_by": made_by}
        record(tmp_path, 70.0 + score, backbone=method, details={"resampled": {}}, **cell)
    text = page(tmp_path, "methods.md")
    assert "cifar10_view_statistics mean_cosine" in text
    assert "pairs of the" not in text
