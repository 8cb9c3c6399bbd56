"""Lines of a sweep: which runs share one, and what their captions say."""

import csv
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.drawing import FIGURES
from benchmarks.drawing.figure import Line, LinePanel, Picture
from benchmarks.drawing.sweeps import Sweep
from benchmarks.figures import read_material
from pretrain.recipes import RECIPES
from pretrain.run import flatten
from tests.benchmarks.drawing.figure_records import jcl_keys, point

SWEEPS = [figure for figure in FIGURES.values() if isinstance(figure, Sweep)]
CIFAR = {"recipe": "jcl/cifar10-cpu", "data": "train (50000 images, fingerprint c)"}


def pictures(results: Path, figure: str = "jcl/fig2a") -> list[Picture]:
    return list(FIGURES[figure].draw(read_material(results)).pictures)


def lines(picture: Picture) -> tuple[Line, ...]:
    (panel,) = picture.panels
    assert isinstance(panel, LinePanel)
    return panel.lines


def test_points_are_those_of_the_records_in_the_order_of_the_setting(tmp_path: Path) -> None:
    jcl_keys(tmp_path, {5: 80.0, 1: 75.0, 2: 77.0})
    (picture,) = pictures(tmp_path)
    (line,) = lines(picture)
    assert [(p.x, p.y) for p in line.points] == [(1, 75.0), (2, 77.0), (5, 80.0)]


def test_seeds_become_a_mean_and_a_standard_deviation(tmp_path: Path) -> None:
    for seed, score in ((0, 79.0), (1, 80.0), (2, 81.0)):
        jcl_keys(tmp_path, {1: score - 5, 5: score}, seed=seed)
    (picture,) = pictures(tmp_path)
    point = lines(picture)[0].points[1]
    assert (point.y, point.spread, point.num_runs) == (80.0, 1.0, 3)
    assert "Means ± standard deviation over 3 runs, seeds 0, 1, 2." in picture.caption


@pytest.mark.parametrize(
    "change",
    [
        {"hash": "other"},
        {"departures": ["epochs 2 instead of 100"]},
        {"made_by": {"precision": "float32"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_protocol_departure_or_precision_is_not_on_the_line(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    jcl_keys(tmp_path, {1: 75.0, 5: 80.0})
    jcl_keys(tmp_path, {9: 20.0}, **change)
    (picture,) = pictures(tmp_path)
    assert [p.x for p in lines(picture)[0].points] == [1, 5]


@pytest.mark.parametrize(
    "change",
    [
        {"schedule": "short"},
        {"small": "excerpt"},
        {"engine": "other"},
        {"made_by": {"epochs": 3.0}},
        {"made_by": CIFAR},
    ],
    ids=str,
)
def test_another_length_data_or_engine_is_another_picture(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    jcl_keys(tmp_path, {1: 75.0, 5: 80.0})
    jcl_keys(tmp_path, {1: 5.0, 5: 8.0}, **(change | {"suffix": "-other"}))
    first, second = pictures(tmp_path)
    assert [p.y for p in lines(first)[0].points] == [75.0, 80.0]
    assert [p.y for p in lines(second)[0].points] == [5.0, 8.0]
    assert first.file_name == "jcl_figure2a"
    assert second.file_name.startswith("jcl_figure2a.")


def test_runs_that_differ_in_another_setting_are_not_joined(tmp_path: Path) -> None:
    jcl_keys(tmp_path, {1: 75.0, 5: 80.0})
    point(tmp_path, "jcl/in100-r18-keys9", 99.0, {"config.num_keys": 9, "batch_size": 32})
    (picture,) = pictures(tmp_path)
    assert [p.x for p in lines(picture)[0].points] == [1, 5]


def test_a_backbone_with_two_names_counts_once(tmp_path: Path) -> None:
    jcl_keys(tmp_path, {1: 75.0, 5: 80.0}, sha256="")
    jcl_keys(tmp_path, {1: 75.0, 5: 80.0}, sha256="", suffix="-again")
    (picture,) = pictures(tmp_path)
    assert {p.num_runs for p in lines(picture)[0].points} == {1}


def test_other_data_than_the_papers_are_said_and_get_no_published_number(tmp_path: Path) -> None:
    for weight in (1.0, 10.0):
        settings = {"config.consistency_weight": weight}
        made_by = CIFAR | {"recipe": "co2/cifar10-cpu"}
        point(
            tmp_path,
            "co2/cifar10-cpu",
            40 + weight,
            settings,
            made_by=made_by,
            suffix=f"{weight}",
            task="cifar10_linear",
            protocol="uniclr-2022/1",
        )
    (picture,) = pictures(tmp_path, "co2/fig2a")
    (panel,) = picture.panels
    assert isinstance(panel, LinePanel)
    assert panel.published == ()
    assert panel.y_label == "CIFAR-10 linear top-1 (%)"
    assert any(text.startswith("Not the paper's runs or data") for text in picture.caption)


def test_the_papers_own_runs_stand_beside_its_stated_numbers(tmp_path: Path) -> None:
    for recipe, weight in (("co2/in100-r18", 10.0), ("co2/in100-r18-weight1", 1.0)):
        point(
            tmp_path,
            recipe,
            60 + weight,
            {"config.consistency_weight": weight},
            protocol="co2-2021/1",
            made_by={"epochs": 200.0},
        )
    (picture,) = pictures(tmp_path, "co2/fig2a")
    (panel,) = picture.panels
    assert isinstance(panel, LinePanel)
    assert [(p.x, p.y) for p in panel.published] == [(10, 69.2), (0, 63.6)]
    assert "Not run: MoCo." in picture.caption


@pytest.mark.parametrize(
    ("projector", "smoothing", "drawn"),
    [("linear", 0.0, True), ("mlp", 0.0, False), ("linear", 0.1, False)],
)
def test_the_level_of_co2_is_moco_with_its_projector(
    tmp_path: Path, projector: str, smoothing: float, drawn: bool
) -> None:
    for weight in (1.0, 10.0):
        settings = {"config.consistency_weight": weight, "config.projector": "linear"}
        point(tmp_path, "co2/cifar10-cpu", 40 + weight, settings, suffix=f"{weight}")
    own = {"config.projector": projector, "config.label_smoothing": smoothing}
    point(tmp_path, "moco/cifar10-cpu", 30.0, own)
    (picture,) = pictures(tmp_path, "co2/fig2a")
    (panel,) = picture.panels
    assert isinstance(panel, LinePanel)
    assert [level.label for level in panel.levels] == ["MoCo"] * drawn
    assert ("Not run: MoCo." in picture.caption) is not drawn


def test_the_csv_holds_the_numbers_of_the_picture(tmp_path: Path) -> None:
    jcl_keys(tmp_path, {1: 75.0, 5: 80.25})
    (picture,) = pictures(tmp_path)
    rows = [dict(zip(picture.header, row, strict=True)) for row in picture.rows]
    assert [(row["series"], row["top1"]) for row in rows] == [
        ("JCL", "75.0000"),
        ("JCL", "80.2500"),
    ]


def test_every_recipe_of_a_sweep_exists_and_has_the_value_of_its_point(
    subtests: pytest.Subtests,
) -> None:
    """Recipes are named in two rooms that do not know each other."""
    for sweep in SWEEPS:
        with subtests.test(sweep=sweep):
            from dataclasses import asdict

            for swept in sweep.lines:
                for recipe, value in swept.recipes.items():
                    settings = flatten(asdict(RECIPES[recipe]))
                    assert math.isclose(float(str(settings[sweep.setting])), value)
                    assert settings["method"] == swept.method
                    assert all(settings[name] == wanted for name, wanted in swept.where.items())


def test_recipes_of_a_line_differ_in_nothing_but_the_setting(subtests: pytest.Subtests) -> None:
    for sweep in SWEEPS:
        with subtests.test(sweep=sweep):
            from dataclasses import asdict

            for swept in sweep.lines:
                others = set()
                for recipe in swept.recipes:
                    settings = flatten(asdict(RECIPES[recipe]))
                    for name in (sweep.setting, *swept.follows, "table_row", "paper", "images"):
                        settings.pop(name)
                    others.add(repr(sorted(settings.items())))
                assert len(others) == 1


def test_tasks_of_a_sweep_exist_with_its_protocol(subtests: pytest.Subtests) -> None:
    for sweep in SWEEPS:
        with subtests.test(sweep=sweep):
            from transfer.tasks import TASKS

            for probe in {swept.probe for swept in (*sweep.lines, *sweep.levels)}:
                assert TASKS[probe.key].protocol.startswith(f"{probe.protocol}/")


def test_rows_of_the_csv_file_can_be_read_back(tmp_path: Path) -> None:
    from benchmarks.drawing.files import csv_text

    jcl_keys(tmp_path, {1: 75.0, 5: 80.0})
    (picture,) = pictures(tmp_path)
    rows = list(csv.DictReader(csv_text(picture).splitlines()))
    assert rows[0]["recipes"] == "jcl/in100-r18-keys1"
