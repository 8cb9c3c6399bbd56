"""Which runs share a line of a sweep, and its caption."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.drawing.figure import figures
from benchmarks.drawing.selection import Point
from tests.benchmarks.drawing.figure_records import (
    caption_of,
    drawn,
    jcl_keys,
    line_panels,
    point,
    settings_of,
)
from tests.benchmarks.drawing.paper_settings import CHANGES, SETTINGS
from transfer.tasks import TASKS

SWEEPS = [figure for figure in figures().values() if figure.kind == "sweep"]
CIFAR = {"recipe": "jcl/cifar10-cpu", "data": "train (50000 images, fingerprint c)"}


def points(results: Path) -> Sequence[Point]:
    """Return the points of the first line of the picture."""
    (panel,) = line_panels(results, "jcl/fig2a")
    return panel.series[0].points


def test_backbone_with_two_names_counts_once(tmp_path: Path) -> None:
    jcl_keys(tmp_path, {5: 80.0}, sha256="5" * 64)
    assert drawn(tmp_path, "jcl/fig2a") == (None, [])
    for seed, score in ((0, 79.0), (1, 80.0), (2, 81.0)):
        for suffix in ("", "-again"):
            same = {"seed": seed, "suffix": suffix}
            jcl_keys(tmp_path, {5: score}, sha256="5" * 64, **same)
            jcl_keys(tmp_path, {1: score - 5}, sha256="1" * 64, **same)
    first, last = points(tmp_path)
    assert (first.x, first.y, last.x) == (1, 75.0, 5)
    assert (last.y, last.spread, last.num_runs) == (80.0, 1.0, 3)
    assert "3 runs, seeds 0, 1, 2" in caption_of(tmp_path, "jcl/fig2a")


def test_other_protocols_departures_precisions_or_settings_are_not_on_the_line(
    tmp_path: Path,
) -> None:
    jcl_keys(tmp_path, {1: 75.0, 5: 80.0})
    changes: tuple[dict[str, Any], ...] = (
        {"hash": "other"},
        {"departures": ["epochs 2 instead of 100"]},
        {"made_by": {"precision": "float32"}},
        {"details": {"crops": "crops/2"}},
    )
    for location, change in enumerate(changes):
        jcl_keys(tmp_path, {9: 20.0}, suffix=f"-{location}", **change)
    point(tmp_path, "jcl/in100-r18-keys9", 99.0, {"config.num_keys": 9, "batch_size": 32})
    assert [p.x for p in points(tmp_path)] == [1, 5]


def test_another_length_data_or_engine_is_not_in_the_picture(tmp_path: Path) -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"schedule": "short"},
        {"small": "excerpt"},
        {"engine": "other"},
        {"made_by": {"epochs": 3.0}},
        {"made_by": CIFAR},
    )
    for location, change in enumerate(changes):
        folder = tmp_path / str(location)
        jcl_keys(folder, {1: 75.0, 5: 80.0})
        jcl_keys(folder, {1: 5.0, 5: 8.0}, **(change | {"suffix": "-other"}))
        assert [point.y for point in points(folder)] == [75.0, 80.0], change


def test_only_the_papers_own_runs_stand_beside_its_stated_numbers(tmp_path: Path) -> None:
    for weight in (1.0, 10.0):
        settings = {"config.consistency_weight": weight}
        made_by = CIFAR | {"recipe": "co2/cifar10-cpu"}
        cell = {"task": "cifar10_linear", "protocol": "uniclr-2022/1", "made_by": made_by}
        point(tmp_path, "co2/cifar10-cpu", 40 + weight, settings, suffix=f"{weight}", **cell)
    (panel,) = line_panels(tmp_path, "co2/fig2a")
    assert not panel.published
    assert panel.y_label == "CIFAR-10 linear top-1 (%)"
    assert "Not the paper's runs or data" in caption_of(tmp_path, "co2/fig2a")
    for recipe, weight in (("co2/in100-r18", 10.0), ("co2/in100-r18-weight1", 1.0)):
        settings, cell = {"config.consistency_weight": weight}, {"protocol": "co2-2021/1"}
        point(tmp_path, recipe, 60 + weight, settings, made_by={"epochs": 200.0}, **cell)
    (panel,) = line_panels(tmp_path, "co2/fig2a")
    assert [(p.x, p.y) for p in panel.published] == [(10, 69.2), (0, 63.6)]
    assert "Not run: MoCo." in caption_of(tmp_path, "co2/fig2a")


def test_the_level_of_co2_is_moco_with_its_projector(tmp_path: Path) -> None:
    for projector, smoothing, levels in (
        ("linear", 0.0, ["MoCo"]),
        ("mlp", 0.0, []),
        ("linear", 0.1, []),
    ):
        folder = tmp_path / f"{projector}{smoothing}"
        for weight in (1.0, 10.0):
            settings = {"config.consistency_weight": weight, "config.projector": "linear"}
            point(folder, "co2/cifar10-cpu", 40 + weight, settings, suffix=f"{weight}")
        ours = {"config.projector": projector, "config.label_smoothing": smoothing}
        point(folder, "moco/cifar10-cpu", 30.0, ours)
        panel = line_panels(folder, "co2/fig2a")[0]
        assert [level.label for level in panel.levels] == levels


def test_recipes_of_a_sweep_differ_in_one_setting() -> None:
    """They are named in three rooms that do not know each other."""
    wrong = []
    for sweep in SWEEPS:
        setting, lines = sweep.arguments["setting"], sweep.arguments["lines"]
        for line in lines:
            remaining = set()
            for recipe, value in line.recipes.items():
                settings = settings_of(recipe)
                fits = math.isclose(float(str(settings[setting])), value)
                fits &= settings["method"] == line.method
                fits &= all(settings[name] == expected for name, expected in line.where.items())
                wrong += [] if fits else [recipe]
                for name in (setting, *line.follows, "table_row", "paper", "images"):
                    settings.pop(name)
                remaining.add(repr(sorted(settings.items())))
            wrong += [] if len(remaining) == 1 else [f"{sweep.id} {line.label}"]
        wrong += {line.key for line in sweep.lines} - TASKS.keys()
    assert wrong == []


def test_recipes_of_figures_have_the_papers_settings() -> None:
    wrong = []
    for name, figure in figures().items():
        if figure.kind == "tradeoff":  # of two other figures
            continue
        runs = [(line.method, recipe) for line in figure.lines for recipe in line.recipes]
        if figure.kind == "log_curves":
            runs += figure.arguments["recipes"].items()
        for method, recipe in runs:
            ours = settings_of(recipe)
            paper = SETTINGS.get((name.partition("/")[0], method), {})
            paper = paper | CHANGES.get((name, method), {})
            swept = figure.arguments.get("setting")
            wrong += [(recipe, k) for k, v in paper.items() if k != swept and ours[k] != v]
    assert not wrong
