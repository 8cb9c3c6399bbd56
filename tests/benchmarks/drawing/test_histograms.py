"""Histograms over images, and two statistics of the same backbones against each other."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.drawing import FIGURES
from benchmarks.drawing.figure import Drawn, Histogram, HistogramPanel, LinePanel
from benchmarks.drawing.panels import _coarser
from benchmarks.figures import read_material
from tests.benchmarks.drawing.figure_records import point, views

MLP = {"config.projector": "mlp"}


def drawn(results: Path, figure: str = "jcl/fig3a") -> Drawn:
    return FIGURES[figure].draw(read_material(results))


def both(results: Path, **changes: Any) -> None:
    views(results, "jcl/cifar10-cpu", {"mean_cosine": [0, 1, 2, 1]}, **changes)
    views(results, "moco/cifar10-cpu", {"mean_cosine": [1, 2, 1, 0]}, settings=MLP, **changes)


def test_methods_stand_in_one_panel(tmp_path: Path) -> None:
    both(tmp_path)
    (picture,) = drawn(tmp_path).pictures
    (panel,) = picture.panels
    assert isinstance(panel, HistogramPanel)
    assert [(h.label, h.counts, h.mean) for h in panel.histograms] == [
        ("JCL", (0, 1, 2, 1), 0.625),
        ("MoCo v2", (1, 2, 1, 0), 0.375),
    ]


def test_the_caption_says_whether_the_order_is_the_papers(tmp_path: Path) -> None:
    both(tmp_path)
    (picture,) = drawn(tmp_path).pictures
    assert "As in the paper, the mean of MoCo v2 is below that of JCL." in picture.caption


def test_features_and_embeddings_are_not_mixed(tmp_path: Path) -> None:
    views(tmp_path, "jcl/cifar10-cpu", {"mean_cosine": [0, 1, 2, 1]})
    views(
        tmp_path,
        "moco/cifar10-cpu",
        {"mean_cosine": [1, 2, 1, 0]},
        settings=MLP,
        details={"space": "feature"},
    )
    assert drawn(tmp_path).pictures == ()


def test_one_method_alone_is_no_figure(tmp_path: Path) -> None:
    views(tmp_path, "jcl/cifar10-cpu", {"mean_cosine": [0, 1, 2, 1]})
    assert drawn(tmp_path) == Drawn()


@pytest.mark.parametrize("counts", [[], [0, 0, 0, 0], [1, 2, 3]], ids=str)
def test_a_record_without_a_whole_histogram_is_said(tmp_path: Path, counts: list[int]) -> None:
    both(tmp_path)
    views(tmp_path, "jcl/cifar10-cpu", {"mean_cosine": counts}, suffix="-torn")
    outcome = drawn(tmp_path)
    assert len(outcome.pictures) == 1
    assert "of jcl-cifar10-cpu-torn: a histogram of 5 edges" in outcome.problems[0]


def test_a_record_without_the_statistic_is_said(tmp_path: Path) -> None:
    views(tmp_path, "jcl/cifar10-cpu", {})
    assert "no histogram of mean_cosine" in drawn(tmp_path).problems[0]


def test_joined_bins_keep_every_image() -> None:
    counts = tuple(range(200))
    edges = tuple(i / 200 for i in range(201))
    histogram = Histogram(label="a", edges=edges, counts=counts, mean=0.5)
    joined_edges, shares = _coarser(histogram, [histogram])
    assert sum(shares) == pytest.approx(100)
    assert len(joined_edges) == len(shares) + 1 <= 50
    assert (joined_edges[0], joined_edges[-1]) == (1 / 200, 1)


def test_accuracy_and_norm_of_the_same_backbones_meet(tmp_path: Path) -> None:
    for beta, norm, score in ((1.0, 10.0, 50.0), (2.0, 12.0, 60.0), (4.0, 15.0, 55.0)):
        settings = {"config.beta": beta, "config.prior": "laplace"}
        common: dict[str, Any] = {"settings": settings, "suffix": f"-{beta}"}
        views(tmp_path, "lorac/cifar10-cpu", {}, details={"mean_nuclear_norm": norm}, **common)
        point(
            tmp_path,
            "lorac/cifar10-cpu",
            score,
            task="cifar10_knn",
            protocol="uniclr-2022/1",
            **common,
        )
    (picture,) = drawn(tmp_path, "lorac/fig3c").pictures
    (panel,) = picture.panels
    assert isinstance(panel, LinePanel)
    assert [(p.x, p.y) for p in panel.lines[0].points] == [(10, 50), (12, 60), (15, 55)]
    assert panel.lines[0].point_labels == ("1", "2", "4")


def test_other_backbones_do_not_meet(tmp_path: Path) -> None:
    for beta in (1.0, 2.0):
        settings = {"config.beta": beta, "config.prior": "laplace"}
        views(
            tmp_path,
            "lorac/cifar10-cpu",
            {},
            settings=settings,
            suffix=f"-{beta}",
            details={"mean_nuclear_norm": 10.0},
        )
        cell = {"task": "cifar10_knn", "protocol": "uniclr-2022/1", "suffix": f"-b{beta}"}
        point(tmp_path, "lorac/cifar10-cpu", 50.0, settings, **cell)
    assert drawn(tmp_path, "lorac/fig3c") == Drawn()
