"""LooC's figures: shares of heads, and nearest neighbors."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmarks.drawing import FIGURES
from benchmarks.drawing.figure import BarPanel, Drawn, ExamplePanel, GridPanel
from benchmarks.figures import read_material
from tests.benchmarks.drawing.figure_records import point
from tests.synthetic_records import put

RECIPE = "loocpp/in100-r50-color-rotation-texture"
DESIGNATED = {"config.designated": ["color", "rotation", "texture"]}
SHARES = [0.1, 0.2, 0.3, 0.4]


def drawn(results: Path, figure: str) -> Drawn:
    return FIGURES[figure].draw(read_material(results))


def heads(results: Path, task: str, shares: list[float] | None, **changes: Any) -> None:
    details = {"head_shares": shares} if shares else {}
    cell = {"task": task, "protocol": "looc-2020/1", "arch": "resnet50-heads4", "details": details}
    made_by = changes.pop("made_by", {"epochs": 500.0})
    point(results, RECIPE, 70.0, DESIGNATED, made_by=made_by, **(cell | changes))


def test_each_data_set_has_a_panel_with_the_heads_by_name(tmp_path: Path) -> None:
    heads(tmp_path, "in100_linear", SHARES)
    heads(tmp_path, "inat1k_linear", [0.25] * 4)
    (picture,) = drawn(tmp_path, "looc/fig4").pictures
    first, second = picture.panels
    assert isinstance(first, BarPanel)
    assert first.names == ("invariant", "color", "rotation", "texture")
    assert [share.y for share in first.shares] == SHARES
    assert second.title == "iNaturalist-1k: 2.00 bits"
    assert any("the paper says close to 1" in text for text in picture.caption)


def test_a_stand_in_for_textures_is_not_the_papers_own(tmp_path: Path) -> None:
    for seed, texture in enumerate(("style bank", "randconv_luma")):
        made_by = {"epochs": 500.0, "texture": texture}
        heads(tmp_path / texture, "in100_linear", SHARES, seed=seed, made_by=made_by)
        (picture,) = drawn(tmp_path / texture, "looc/fig4").pictures
        caption = " ".join(picture.caption)
        stand_in = texture == "randconv_luma"
        assert ("Not the paper's runs" in caption) == stand_in
        assert ("textures by randconv_luma" in caption) == stand_in


def test_seeds_of_a_probe_are_averaged(tmp_path: Path) -> None:
    heads(tmp_path, "in100_linear", [0.1, 0.2, 0.3, 0.4], seed=0)
    heads(tmp_path, "in100_linear", [0.3, 0.2, 0.1, 0.4], seed=1)
    (picture,) = drawn(tmp_path, "looc/fig4").pictures
    (panel,) = picture.panels
    assert isinstance(panel, BarPanel)
    assert [share.y for share in panel.shares] == pytest.approx([0.2, 0.2, 0.2, 0.4])


@pytest.mark.parametrize(
    "change",
    [
        {"protocol": "jcl-2020/1"},
        {"hash": "other"},
        {"schedule": "0.5", "hash": "other"},
        {"small": "excerpt", "fingerprint": "g", "hash": "other"},
        {"engine": "torch"},
    ],
    ids=str,
)
def test_another_evaluation_is_another_picture(tmp_path: Path, change: dict[str, Any]) -> None:
    same = {"engine": "batched", "sha256": "a" * 64}
    heads(tmp_path, "in100_linear", [0.1, 0.2, 0.3, 0.4], **same)
    heads(tmp_path, "in100_linear", [0.3, 0.2, 0.1, 0.4], **same | {"suffix": "-b"} | change)
    pictures = drawn(tmp_path, "looc/fig4").pictures
    shares = [panel.shares for p in pictures for panel in p.panels if isinstance(panel, BarPanel)]
    assert [own[0].num_runs for own in shares] == [1, 1]
    assert len({picture.file_name for picture in pictures}) == 2


def test_a_network_with_two_names_counts_once(tmp_path: Path) -> None:
    for suffix in ("", "-again"):
        heads(tmp_path, "in100_linear", SHARES, suffix=suffix, sha256="a" * 64)
    (picture,) = drawn(tmp_path, "looc/fig4").pictures
    (panel,) = picture.panels
    assert isinstance(panel, BarPanel)
    assert panel.shares[0].num_runs == 1
    assert any(text.endswith(", seed 0.") for text in picture.caption)


def test_a_record_of_another_data_set_is_asked_for(tmp_path: Path) -> None:
    heads(tmp_path, "in100_linear", SHARES)
    heads(tmp_path, "inat1k_linear", None)
    (problem,) = drawn(tmp_path, "looc/fig4").problems
    assert "delete the file and evaluate the checkpoint again" in problem


def test_the_caption_says_which_images_the_shares_are_of(tmp_path: Path) -> None:
    details = {
        "head_shares": SHARES,
        "num_images_with_shares": 215,
        "num_test": 1000,
        "accuracy_per_class": {"cat": 43.0, "deer": 0.0, "dog": 0.0},
        "head_share_histograms": {"edges": [0.0, 0.5, 1.0], "counts": [[100, 115]] * 4},
    }
    heads(tmp_path, "in100_linear", None, details=details)
    caption = " ".join(drawn(tmp_path, "looc/fig4").pictures[0].caption)
    assert "(top-1 70.0 %), 215 of 1,000 test images" in caption
    assert "none of deer, dog; two standard errors of a share are 3.4 points" in caption


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (
            {"in100_linear": [1.0, 0.0, 0.0, 0.0], "inat1k_linear": SHARES},
            "(close to 2), with four heads; the same here.",
        ),
        ({"inat1k_linear": [1.0, 0.0, 0.0, 0.0], "in100_linear": SHARES}, "; not so here."),
        ({"in100_linear": SHARES}, "not both data sets are here, so there is no order"),
    ],
)
def test_the_order_of_the_entropies_is_said(
    tmp_path: Path, own: dict[str, list[float]], words: str
) -> None:
    for task, shares in own.items():
        heads(tmp_path, task, shares)
    assert words in " ".join(drawn(tmp_path, "looc/fig4").pictures[0].caption)


def test_without_a_correct_prediction_there_are_no_shares(tmp_path: Path) -> None:
    cell = {"task": "in100_linear", "protocol": "looc-2020/1", "arch": "resnet50-heads4"}
    point(tmp_path, RECIPE, 0.0, DESIGNATED, made_by={"epochs": 500.0}, **cell)
    (problem,) = drawn(tmp_path, "looc/fig4").problems
    assert problem.endswith("because no test image was predicted correctly")


def image(color: int, label: int) -> dict[str, Any]:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (color, color, color)).save(buffer, format="JPEG")
    return {
        "index": color,
        "label": label,
        "class": f"class {label}",
        "file": f"{color}.png",
        "jpeg_base64": base64.b64encode(buffer.getvalue()).decode(),
    }


def neighbors(results: Path, recipe: str, labels: list[int], **changes: Any) -> None:
    """Twelve queries of class 0, each with neighbors of these classes."""
    queries = [
        image(query, 0)
        | {"neighbors": [image(100 + i, label) | {"cosine": 0.9} for i, label in enumerate(labels)]}
        for query in range(12)
    ]
    cell = {
        "task": "cifar10_neighbors",
        "protocol": "looc-2020/1",
        "metric": "same_class",
        "details": {"queries": queries},
        "settings": {"config.designated": ["color"]} if "looc" in recipe else {},
    }
    point(results, recipe, changes.pop("score", 50.0), **(cell | changes))


def test_networks_stand_side_by_side_with_the_same_queries(tmp_path: Path) -> None:
    neighbors(tmp_path, "looc/cifar10-cpu", [0, 0, 1, 0, 0, 0])
    neighbors(tmp_path, "moco/cifar10-cpu", [1, 1, 1, 0, 0, 0])
    (picture,) = drawn(tmp_path, "looc/fig3a").pictures
    left, right = picture.panels
    assert isinstance(left, GridPanel)
    assert isinstance(right, GridPanel)
    assert (left.title, right.title, len(left.rows)) == ("LooC", "MoCo", 8)
    assert [tile.agrees for tile in left.rows[0]] == [None, True, True, False, True, True]
    assert len(picture.rows) == 2 * 12 * 6


def test_the_caption_names_the_network_that_is_drawn(tmp_path: Path) -> None:
    for recipe in ("loocpp/cifar10-cpu", "moco/cifar10-cpu"):
        neighbors(tmp_path, recipe, [0] * 8)
    caption = drawn(tmp_path, "looc/fig3a").pictures[0].caption
    assert caption[0].endswith("by LooC++ with a head for color, and by MoCo.")
    assert "The paper's figure has LooC; this is LooC++." in caption


@pytest.mark.parametrize(("number", "words"), [(100, "within"), (10_000, "beyond")])
def test_the_caption_counts_queries_and_neighbors_and_says_the_noise(
    tmp_path: Path, number: int, words: str
) -> None:
    neighbors(tmp_path, "looc/cifar10-cpu", [0] * 8, score=25.4)
    neighbors(tmp_path, "moco/cifar10-cpu", [1] * 8, score=23.6)
    for path in (tmp_path / "records").rglob("*.json"):
        content = json.loads(path.read_text())
        content["details"]["num_test"] = number
        content["data"]["set"]["counts"] = {"trainval": 5000, "test": number}
        put(path.parent, path.name, content)
    caption = " ".join(drawn(tmp_path, "looc/fig3a").pictures[0].caption)
    assert (
        f"among the 8 nearest, over all {number:,} test images (shown are 5 neighbors of 8 of "
        "these): LooC 25.4 %, MoCo 23.6 %."
    ) in caption
    assert f"(5,000 training and {number:,} test images)" in caption
    assert f"the difference of 1.8 points is {words} noise" in caption


def test_other_queries_cannot_stand_side_by_side(tmp_path: Path) -> None:
    neighbors(tmp_path, "looc/cifar10-cpu", [0])
    query = image(50, 0) | {"neighbors": [image(100, 0) | {"cosine": 0.5}]}
    neighbors(tmp_path, "moco/cifar10-cpu", [0], details={"queries": [query]})
    outcome = drawn(tmp_path, "looc/fig3a")
    assert outcome.pictures == ()
    assert "have other queries" in outcome.problems[0]


@pytest.mark.parametrize(
    "queries",
    [[], [{"class": "a"}], [image(1, 0) | {"neighbors": [{"jpeg_base64": "no picture"}]}]],
    ids=["none", "fields", "thumbnail"],
)
def test_neighbors_that_cannot_be_shown_are_said(
    tmp_path: Path, queries: list[dict[str, Any]]
) -> None:
    neighbors(tmp_path, "looc/cifar10-cpu", [0], details={"queries": queries})
    neighbors(tmp_path, "moco/cifar10-cpu", [0])
    outcome = drawn(tmp_path, "looc/fig3a")
    assert outcome.pictures == ()
    assert "looc-cifar10-cpu" in outcome.problems[0]


def test_images_with_shares_are_of_many_classes(tmp_path: Path) -> None:
    examples = [image(own, own // 2) | {"shares": SHARES} for own in range(12)]
    details = {"head_shares": SHARES, "head_share_examples": examples}
    heads(tmp_path, "in100_linear", None, details=details)
    (picture,) = drawn(tmp_path, "looc/fig4").pictures
    (panel,) = [own for own in picture.panels if isinstance(own, ExamplePanel)]
    assert [tile.label for tile in panel.tiles] == [f"class {label}" for label in range(6)]
