"""LooC's figures: shares of heads, and nearest neighbors."""

import base64
import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmarks.drawing import FIGURES
from benchmarks.drawing.figure import Drawn
from benchmarks.drawing.panels import BarPanel, TilePanel
from benchmarks.figures import read_material
from tests.benchmarks.drawing.figure_records import drawn, point

RECIPE = "loocpp/in100-r50-color-rotation-texture"
DESIGNATED = {"config.designated": ["color", "rotation", "texture"]}
SHARES = [0.1, 0.2, 0.3, 0.4]


def heads(results: Path, task: str, shares: list[float] | None, **changes: Any) -> None:
    details = {"head_shares": shares} if shares else {}
    cell = {"task": task, "protocol": "looc-2020/1", "arch": "resnet50-heads4", "details": details}
    made_by = changes.pop("made_by", {"epochs": 500.0})
    point(results, RECIPE, 70.0, DESIGNATED, made_by=made_by, **(cell | changes))


def bars(results: Path) -> list[BarPanel]:
    pictures = drawn(results, "looc/fig4").pictures
    return [panel for p in pictures for panel in p.panels if isinstance(panel, BarPanel)]


def test_seeds_of_a_probe_are_averaged(tmp_path: Path) -> None:
    heads(tmp_path, "in100_linear", [0.1, 0.2, 0.3, 0.4], seed=0)
    heads(tmp_path, "in100_linear", [0.3, 0.2, 0.1, 0.4], seed=1)
    (panel,) = bars(tmp_path)
    assert tuple(panel.names) == ("invariant", "color", "rotation", "texture")
    assert [share.y for share in panel.shares] == pytest.approx([0.2, 0.2, 0.2, 0.4])
    assert panel.shares[0].num_runs == 2


def test_other_evaluations_do_not_share_a_mean(tmp_path: Path) -> None:
    small = {"small": "excerpt", "hash": "other"}
    another_picture: tuple[dict[str, Any], ...] = (
        {"protocol": "jcl-2020/1"},
        {"schedule": "0.5", "hash": "other"},
        small | {"fingerprint": "g"},
        {"engine": "torch"},
    )
    changes = (*another_picture, {"hash": "other"}, small | {"fingerprint": "h"})
    for place, change in enumerate(({"engine": "batched"}, *changes)):
        same = {"engine": "batched", "sha256": "a" * 64, "suffix": f"-{place}"}
        heads(tmp_path, "in100_linear", SHARES, **same | change)
    assert [panel.shares[0].num_runs for panel in bars(tmp_path)] == [1] * 5
    assert len({picture.file_name for picture in drawn(tmp_path, "looc/fig4").pictures}) == 5


def test_a_record_without_whole_shares_is_named(tmp_path: Path) -> None:
    for place, shares in enumerate((None, [0.5, 0.1], [1.0])):
        folder = tmp_path / str(place)
        heads(folder, "in100_linear", shares)
        outcome = drawn(folder, "looc/fig4")
        assert outcome.pictures == ()
        (record,) = (folder / "records").rglob("*.json")
        assert outcome.problems[0].startswith(f"{record}, the record of ")
        assert "delete the file" in outcome.problems[0]
    # one head of such a network lacks nothing
    heads(tmp_path / "one", "in100_linear", None, arch="resnet50")
    assert drawn(tmp_path / "one", "looc/fig4") == Drawn()


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


def test_examples_of_earlier_records_have_no_picture_and_cost_no_figure(tmp_path: Path) -> None:
    without = {"index": 0, "label": 0, "shares": SHARES}
    details = {"head_shares": SHARES, "head_share_examples": [without, image(1, 0) | without]}
    heads(tmp_path, "rotation4_linear", None, details=details)
    (picture,) = drawn(tmp_path, "looc/fig4").pictures
    assert [len(p.rows) for p in picture.panels if isinstance(p, TilePanel)] == [1]


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
    point(results, recipe, 50.0, **(cell | changes))


def test_networks_stand_side_by_side_with_the_same_queries_alone(tmp_path: Path) -> None:
    neighbors(tmp_path, "looc/cifar10-cpu", [0, 0, 1, 0, 0, 0])
    neighbors(tmp_path, "moco/cifar10-cpu", [1, 1, 1, 0, 0, 0])
    (picture,) = drawn(tmp_path, "looc/fig3a").pictures
    left, right = picture.panels
    assert isinstance(left, TilePanel)
    assert isinstance(right, TilePanel)
    assert (left.title, right.title, len(left.rows)) == ("LooC", "MoCo", 8)
    assert [tile.agrees for tile in left.rows[0]] == [None, True, True, False, True, True]
    assert len(picture.rows) == 2 * 12 * 6
    query = image(50, 0) | {"neighbors": [image(100, 0) | {"cosine": 0.5}]}
    neighbors(tmp_path, "moco/cifar10-cpu", [0], details={"queries": [query]})
    outcome = drawn(tmp_path, "looc/fig3a")
    assert outcome.pictures == ()
    assert "have other queries" in outcome.problems[0]


def test_figure_3_has_a_picture_for_each_data_set_of_the_paper(tmp_path: Path) -> None:
    figure = FIGURES["looc/fig3a"]
    (command,) = figure.needed(read_material(tmp_path))
    assert "--tasks in100_neighbors,inat1k_neighbors" in command
    for task in ("in100_neighbors", "inat1k_neighbors"):
        for recipe in ("looc/in100-r50-color", "moco/in100-r50"):
            neighbors(tmp_path, recipe, [0, 0, 1, 0, 0, 0], task=task)
    assert [picture.exact for picture in drawn(tmp_path, "looc/fig3a").pictures] == [True, True]
    assert figure.needed(read_material(tmp_path)) == []


def test_neighbors_that_cannot_be_shown_are_said(tmp_path: Path) -> None:
    no_thumbnail = image(1, 0) | {"neighbors": [{"jpeg_base64": "no picture"}]}
    foreign: tuple[list[dict[str, Any]], ...] = ([], [{"class": "a"}], [no_thumbnail])
    for place, queries in enumerate(foreign):
        folder = tmp_path / str(place)
        neighbors(folder, "looc/cifar10-cpu", [0], details={"queries": queries})
        neighbors(folder, "moco/cifar10-cpu", [0])
        outcome = drawn(folder, "looc/fig3a")
        assert outcome.pictures == ()
        assert "looc-cifar10-cpu" in outcome.problems[0]
