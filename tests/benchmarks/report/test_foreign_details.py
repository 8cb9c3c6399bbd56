"""Foreign details of records, unknown tasks and odd names."""

from pathlib import Path
from typing import Any

from benchmarks.pages.published import transfer_tasks
from benchmarks.report_parts.contents import read_contents
from benchmarks.report_parts.page import TaskPart, parts_by_task, report_page
from benchmarks.report_parts.task_details import task_details
from tests.benchmarks.report.complete_records import HOSTILE, complete

TASK = transfer_tasks()[0]
FOREIGN: tuple[Any, ...] = ("x", 3, None, [1], ["a"], [{}], {"a": "x"}, {"a": {"1": "x"}}, {"a": 3})
GOOD: dict[str, Any] = {
    "val_accuracy": {"0.1": 40.0, "1.0": 50.0, "10.0": 45.0},
    "learning_rate": 1.0,
    "held_out_top1": {"0.1": 40.0, "1.0": 50.0},
    "head_rate": 1.0,
    "mean_cross_validated_AP": {"0.1": 40.0, "1.0": 50.0},
    "top1": {"noise": {"1": 60.0, "2": 50.0}},
    "top1_after_each_pass": [10.0, 20.0],
    "training": {"curve": [[1, 2.0], [2, 1.0]]},
    "precisions": {"bbox": {"AP": 30.0, "AP/cat": 20.0, "AP/dog": 40.0}},
    "accuracy_per_class": {"cat": 20.0},
    "IoU_per_class": {"cat": 20.0},
    "classes": {"cat": {"cost": 1.0, "cross_validated_AP": 2.0, "AP": 3.0}},
    "classes_counted_over": "3 trials",
    "trials": {"acc": [1.0, 2.0]},
    "draws": {"acc": [1.0, 2.0]},
    "most_confused": [{"class": "cat", "taken_for": "dog", "images": 3, "of": 9}],
    "queries": [
        {
            "class": "cat",
            "file": "a",
            "jpeg_base64": "/9j/",
            "neighbors": [{"class": "cat", "file": "b", "jpeg_base64": "/9j/"}],
        }
    ],
}


def part_of(folder: Path, **details: Any) -> TaskPart:
    complete(folder, "mine", TASK, details=details)
    (part,) = parts_by_task(read_contents(folder))
    return part


def titles(part: TaskPart) -> set[str]:
    return set(part.words.split("; "))


def test_every_detail_of_a_foreign_shape_is_named_and_none_of_its_own() -> None:
    assert task_details(GOOD).unreadable == ()
    for name in GOOD:
        for foreign in FOREIGN:
            assert set(task_details(GOOD | {name: foreign}).unreadable) <= {name}
        assert task_details(GOOD | {name: [[["x"]]]}).unreadable == (name,)


def test_a_foreign_detail_costs_only_its_own_part(tmp_path: Path) -> None:
    whole = titles(part_of(tmp_path / "whole", **GOOD))
    by_corruption = {"Accuracy by severity of the corruption"}
    by_corruption |= {"Top-1 by corruption, mean over severities"}
    cases: tuple[tuple[str, Any, set[str]], ...] = (
        ("most_confused", [{"klass": 1}], {"Most confused classes"}),
        ("top1", {"noise": {"1": "x"}}, by_corruption),
        ("top1_after_each_pass", ["a"], {"Accuracy after each pass"}),
        ("queries", [{"neighbors": "x"}], {"Nearest images"}),
    )
    for name, foreign, lost in cases:
        part = part_of(tmp_path / name, **GOOD | {name: foreign})
        assert whole - titles(part) == lost
        (sentence,) = part.unreadable
        assert sentence.startswith(f"{name} of the record ")
        assert f"{TASK}.lorac-2021-1.paper.seed0.json" in sentence


def test_the_page_shows_the_sentence(tmp_path: Path) -> None:
    complete(tmp_path, HOSTILE, TASK, details={"top1_after_each_pass": ["a"]})
    page = report_page(tmp_path)
    assert "top1_after_each_pass of the record" in page
    assert HOSTILE not in page


def test_an_unknown_task_and_names_of_any_script_are_shown(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"metrics": {"zap": 12.5}, "primary_metric": "zap"}
    changes["details"] = {"accuracy_per_class": {HOSTILE: 1.0, "猫 ☃\u202e": 2.0}}
    complete(tmp_path, "Ünïcode ☃ 名前", "no_such_task", heading="Strange", **changes)
    page = report_page(tmp_path)
    assert "no_such_task" in page
    assert "Ünïcode ☃ 名前" in page
    assert "猫 ☃" in page
    assert HOSTILE not in page
