"""Histograms over images, and scatter plots of two statistics."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.drawing.panels import Histogram, Histograms
from tests.benchmarks.drawing.figure_records import caption_of, drawn, line_panels, point, views

MLP = {"config.projector": "mlp"}


def both(results: Path, jcl: list[int], moco: list[int], **of_moco: Any) -> None:
    views(results, "jcl/cifar10-cpu", {"mean_cosine": jcl})
    views(results, "moco/cifar10-cpu", {"mean_cosine": moco}, **({"settings": MLP} | of_moco))


def test_caption_states_two_standard_errors(
    tmp_path: Path,
) -> None:
    # 40 images in two bins of width 1/4: variance 1/64 * 40/39
    both(tmp_path, [0, 0, 20, 20], [20, 20, 0, 0])
    caption = caption_of(tmp_path, "jcl/fig3a")
    error = 2 * (1 / 64 * 40 / 39 / 40) ** 0.5
    assert f"JCL 0.750 ± {error:.2g}, MoCo v2 0.250 ± {error:.2g}." in caption
    assert "In the paper, MoCo v2 is below JCL." in caption


def test_unlike_statistics_do_not_share_a_picture(tmp_path: Path) -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"details": {"space": "feature"}},
        {"settings": {"config.projector": "linear"}},  # MoCo v1, another row of the paper
        {"hash": "other"},
    )
    for location, change in enumerate(changes):
        both(tmp_path / str(location), [0, 1, 2, 1], [1, 2, 1, 0], **change)
        assert drawn(tmp_path / str(location), "jcl/fig3a") == (None, []), change


def test_records_without_the_histogram_are_skipped(tmp_path: Path) -> None:
    both(tmp_path, [0, 1, 2, 1], [1, 2, 1, 0])
    without: tuple[dict[str, Any], ...] = ({}, {"histograms": {"mean_nuclear_norm": {}}})
    for details in without:
        views(tmp_path, "jcl/cifar10-cpu", {}, details=details, suffix=f"-{len(details)}")
    picture, problems = drawn(tmp_path, "jcl/fig3a")
    assert picture
    assert not problems


def test_joined_bins_keep_every_image() -> None:
    edges = tuple(i / 200 for i in range(201))
    histogram = Histogram("a", edges, range(200), mean=0.5)
    bins = Histograms("x", [histogram]).bins()
    counts, _ = np.histogram(histogram.middles, bins, weights=histogram.counts)
    assert counts.sum() == sum(histogram.counts)
    assert len(bins) <= 50
    assert (bins[0], bins[-1]) == (1 / 200, 1)


def norm_and_accuracy(results: Path, beta: float, norm: float, score: float, other: str) -> None:
    settings = {"config.beta": beta, "config.prior": "laplace"}
    recipe, details = "lorac/cifar10-cpu", {"mean_nuclear_norm": norm}
    views(results, recipe, {}, settings=settings, details=details, suffix=f"-{beta}")
    cell = {"task": "cifar10_knn", "protocol": "uniclr-2022/1"}
    point(results, recipe, score, settings, suffix=f"-{other}{beta}", **cell)


def test_accuracy_and_norm_of_the_same_backbones_meet(tmp_path: Path) -> None:
    for numbers in ((1.0, 10.0, 50.0), (2.0, 12.0, 60.0), (4.0, 15.0, 55.0)):
        norm_and_accuracy(tmp_path / "same", *numbers, other="")
        norm_and_accuracy(tmp_path / "others", *numbers, other="b")
    (panel,) = line_panels(tmp_path / "same", "lorac/fig3c")
    assert [(p.x, p.y) for p in panel.series[0].points] == [(10, 50), (12, 60), (15, 55)]
    assert panel.series[0].point_labels == ["1", "2", "4"]
    assert drawn(tmp_path / "others", "lorac/fig3c") == (None, [])
