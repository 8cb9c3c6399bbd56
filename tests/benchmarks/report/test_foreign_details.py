"""Foreign details of records, unknown tasks and odd names."""

from pathlib import Path
from typing import Any

from benchmarks.pages.published import transfer_tasks
from benchmarks.report_parts.page import report_page
from tests.benchmarks.report.complete_records import HOSTILE, complete

FOREIGN: dict[str, Any] = {
    "val_accuracy": {"a": "x"},
    "top1": {"noise": {"1": "x"}},
    "training": 3,
    "most_confused": [{"klass": HOSTILE}],
    "queries": [{"neighbors": "x"}],
}


def test_a_foreign_detail_costs_only_its_own_task(tmp_path: Path) -> None:
    kept = {"accuracy_per_class": {"cat": 20.0}}
    for task, (name, detail) in zip(transfer_tasks(), FOREIGN.items(), strict=False):
        complete(tmp_path, HOSTILE, task, details={name: detail})
    complete(tmp_path, "mine", transfer_tasks()[-1], details=kept)
    page = report_page(tmp_path)
    assert page.count('class="below unreadable"') == len(FOREIGN)
    assert "Accuracy by class" in page
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
