"""Histograms over images, and two statistics of the same backbones against each other."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.drawing import FIGURES
from benchmarks.drawing.figure import Drawn, Histogram, HistogramPanel, LinePanel
from benchmarks.drawing.panels import _coarser
from benchmarks.figures import read_material
from tests.benchmarks.drawing.figure_records import point, settings_of, views

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


@pytest.mark.parametrize(
    ("jcl", "moco", "words"),
    [
        ([0, 10, 20, 10], [10, 20, 10, 0], "As in the paper, the mean of MoCo v2 is below that"),
        ([10, 20, 10, 0], [0, 10, 20, 10], "Unlike in the paper, the mean of MoCo v2 is above"),
        ([0, 1, 2, 1], [1, 2, 1, 0], "The difference of MoCo v2 and JCL is within noise"),
    ],
)
def test_the_caption_says_whether_the_order_is_the_papers(
    tmp_path: Path, jcl: list[int], moco: list[int], words: str
) -> None:
    views(tmp_path, "jcl/cifar10-cpu", {"mean_cosine": jcl})
    views(tmp_path, "moco/cifar10-cpu", {"mean_cosine": moco}, settings=MLP)
    (picture,) = drawn(tmp_path).pictures
    assert words in " ".join(picture.caption)


def test_noise_of_means_over_images_is_two_standard_errors(tmp_path: Path) -> None:
    # 40 images in two bins of width 1/4: variance 1/64 * 40/39, error of a difference sqrt(2/40)
    both = {"mean_cosine": [20, 20, 0, 0]}
    views(tmp_path, "jcl/cifar10-cpu", both)
    views(tmp_path, "moco/cifar10-cpu", both, settings=MLP)
    (picture,) = drawn(tmp_path).pictures
    noise = 2 * (1 / 64 * 40 / 39 * 2 / 40) ** 0.5
    assert f"(two standard errors over images: {noise:.2g})" in " ".join(picture.caption)


def test_the_whole_order_is_said_and_what_the_paper_leaves_open(tmp_path: Path) -> None:
    norm = "mean_nuclear_norm"
    lorac = {"config.prior": "laplace"}
    views(tmp_path, "lorac/cifar10-cpu", {norm: [0, 40, 0, 0]}, settings=lorac)
    views(tmp_path, "moco_m/cifar10-cpu", {norm: [0, 0, 40, 0]})
    views(tmp_path, "moco/cifar10-cpu", {norm: [40, 0, 0, 0]}, settings=MLP)
    (picture,) = drawn(tmp_path, "lorac/fig4c").pictures
    caption = " ".join(picture.caption)
    assert "Means from the highest: MoCo-M 0.625, LORAC 0.375, MoCo-v2 0.125." in caption
    assert "As in the paper, the mean of LORAC is below that of MoCo-M" in caption
    assert "On MoCo-v2 the paper's text states nothing." in caption


def test_the_caption_says_how_the_networks_were_trained(tmp_path: Path) -> None:
    small = {"views.size_px": 16, "batch_size": 64}
    for recipe, own in (("jcl/cifar10-cpu", {}), ("moco/cifar10-cpu", MLP)):
        views(tmp_path, recipe, {"mean_cosine": [0, 1, 2, 1]}, settings=small | own)
    (picture,) = drawn(tmp_path).pictures
    words = "All with ImageNet stem, views of 16 px, batch 64, in bfloat16."
    assert words in picture.caption


@pytest.mark.parametrize(
    ("figure", "statistic", "words"),
    [
        ("jcl/fig3a", "mean_cosine", "JCL: M' 2 (9), λ 1 (4), τ 0.1 (0.2), "),
        ("jcl/fig3a", "mean_cosine", "probability of blur 0 (0.5, by its code); MoCo v2: τ 0.1 "),
        ("jcl/fig3a", "mean_cosine", "out of each ResNet-18 network; which output that is, is our"),
        (
            "lorac/fig4c",
            "mean_nuclear_norm",
            "LORAC: β 4 (2, the best of Figure 3(a)), τ 0.1 (0.2)",
        ),
        ("lorac/fig4c", "mean_nuclear_norm", "small views of multi-crop 0 (5), key views 1 (2, "),
        (
            "lorac/fig4c",
            "mean_nuclear_norm",
            "32 random views of each of 4 images (in the paper 32 ",
        ),
    ],
)
def test_the_caption_names_what_differs_from_the_paper(
    tmp_path: Path, figure: str, statistic: str, words: str
) -> None:
    for method in ("jcl", "lorac", "moco", "moco_m"):
        settings = settings_of(f"{method}/cifar10-cpu")
        views(tmp_path, f"{method}/cifar10-cpu", {statistic: [0, 1, 2, 1]}, settings=settings)
    assert words in " ".join(drawn(tmp_path, figure).pictures[0].caption)


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


def test_moco_with_a_linear_projector_is_not_moco_v2(tmp_path: Path) -> None:
    views(tmp_path, "jcl/cifar10-cpu", {"mean_cosine": [0, 1, 2, 1]})
    linear = {"config.projector": "linear"}
    views(tmp_path, "moco/cifar10-cpu", {"mean_cosine": [1, 2, 1, 0]}, settings=linear)
    assert drawn(tmp_path) == Drawn()


def test_statistics_of_other_protocols_are_not_mixed(tmp_path: Path) -> None:
    views(tmp_path, "jcl/cifar10-cpu", {"mean_cosine": [0, 1, 2, 1]}, hash="trainval")
    views(tmp_path, "moco/cifar10-cpu", {"mean_cosine": [1, 2, 1, 0]}, settings=MLP, hash="test")
    assert drawn(tmp_path) == Drawn()


@pytest.mark.parametrize(
    "histogram",
    [
        {"edges": None, "counts": [1]},
        {"edges": 5, "counts": [1]},
        {"edges": ["a", "b"], "counts": [1]},
        {"edges": [0.0, float("nan")], "counts": [1]},
        {"edges": [0.0, 1.0], "counts": "1"},
        {"edges": [0.0, 0.5, 1.0], "counts": [2, -1]},
    ],
    ids=str,
)
def test_a_foreign_histogram_is_said(tmp_path: Path, histogram: dict[str, Any]) -> None:
    both(tmp_path)
    details = {"histograms": {"mean_cosine": histogram}}
    views(tmp_path, "jcl/cifar10-cpu", {}, details=details, suffix="-foreign")
    outcome = drawn(tmp_path)
    assert len(outcome.pictures) == 1
    assert "of jcl-cifar10-cpu-foreign: " in outcome.problems[0]


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
