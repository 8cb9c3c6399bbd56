"""LooC's figure of the shares of heads."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.drawing.panels import Bars
from tests.benchmarks.drawing.figure_records import drawn, picture_of, point

RECIPE = "loocpp/in100-r50-color-rotation-texture"
DESIGNATED = {"config.designated": ["color", "rotation", "texture"]}
SHARES = [0.1, 0.2, 0.3, 0.4]


def heads(results: Path, task: str, shares: list[float] | None, **changes: Any) -> None:
    details: dict[str, Any] = {"num_images_with_shares": 500, "num_test": 1000}
    details |= {"head_shares": shares} if shares else {}
    cell = {"task": task, "protocol": "looc-2020/1", "arch": "resnet50-heads4", "details": details}
    made_by = changes.pop("made_by", {"epochs": 500.0})
    point(results, RECIPE, 70.0, DESIGNATED, made_by=made_by, **(cell | changes))


def bars(results: Path) -> list[Bars]:
    return [p for p in picture_of(results, "looc/fig4").panels if isinstance(p, Bars)]


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
    for location, change in enumerate(({"engine": "batched"}, *changes)):
        same = {"engine": "batched", "sha256": "a" * 64, "suffix": f"-{location}"}
        heads(tmp_path, "in100_linear", SHARES, **same | change)
    assert [panel.shares[0].num_runs for panel in bars(tmp_path)] == [1]


def test_a_probe_without_shares_is_not_drawn(tmp_path: Path) -> None:
    heads(tmp_path, "in100_linear", None, arch="resnet50")
    assert drawn(tmp_path, "looc/fig4") == (None, [])


def test_a_figure_with_malformed_shares_names_the_error(tmp_path: Path) -> None:
    heads(tmp_path, "in100_linear", [1.0])
    picture, (problem,) = drawn(tmp_path, "looc/fig4")
    assert picture is None
    assert problem == "cannot be drawn: IndexError: list index out of range"
