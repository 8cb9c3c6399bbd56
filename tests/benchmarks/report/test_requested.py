"""Requested evaluations are listed before others."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.execution.ending import write_requested
from benchmarks.report_parts.evaluated import NOT_FINISHED, reason_of, without_result
from benchmarks.report_parts.page import report_page
from benchmarks.results.contents import read_contents
from benchmarks.results.published import transfer_tasks
from benchmarks.results.records import read_results
from benchmarks.words import grouped
from tests.benchmarks.conftest import Rows
from tests.benchmarks.report.complete_records import HOSTILE
from tests.synthetic_records import failure, put, record
from transfer.record import record_path, state_path
from transfer.tasks import reading_of

TASK = transfer_tasks()[0]


def request(results: Path, key: str, **changes: Any) -> None:
    """Write the state of a queued evaluation whose process has ended."""
    content: dict[str, Any] = {
        "format": "ssl-cell/1",
        "state": "queued",
        "reason": "",
        "backbone": "mine",
        "task": reading_of(key)[0],
        "protocol": "lorac-2021/1",
        "schedule": "paper",
        "seed": 0,
        "missing_data": [],
        "request": {"task": key, "checkpoint": {"snapshot": False}},
        "host": "other",
        "pid": 1,
        "log": "",
    } | changes
    names = ("backbone", "task", "protocol", "schedule", "seed")
    file = state_path(record_path(results / "records", *(content[name] for name in names)))
    put(file.parent, file.name, content)


def left(results: Path) -> list[tuple[list[str], str]]:
    remaining = without_result(results, read_results(results).runs)
    groups = grouped((reason_of(content), content["request"]["task"]) for content in remaining)
    return [(tasks, reason) for reason, tasks in groups.items()]


def test_only_unfinished_cells_remain(
    tmp_path: Path,
) -> None:
    record(tmp_path, 79.7)
    failure(tmp_path, TASK, "no such file")
    request(tmp_path, "voc07_svm", protocol="co2-2021/1", state="stopped")
    food = {"state": "missing data", "missing_data": ["food"]}
    request(tmp_path, "transfer_linear/food", **food)
    get_data = "python -m transfer get-data food --data DATA"
    assert left(tmp_path) == [(["transfer_linear/food"], f"no food; to get it: {get_data}")]
    (file,) = tmp_path.rglob("food*.state.json")
    for text in ("", "[]", '{"format": "other"}'):
        file.write_text(text)
        assert left(tmp_path) == []


def test_tasks_are_grouped_by_reason(tmp_path: Path) -> None:
    reason = {"state": "unsupported", "reason": "its strides are not 4 to 32"}
    request(tmp_path, "coco_det", protocol="jcl-2020/1", **reason)
    request(tmp_path, "voc07_svm", protocol="co2-2021/1", state="running", reason="30 %")
    for task in (TASK, "transfer_linear/food"):
        request(tmp_path, task, state="missing data", missing_data=["food", "pets"], seed=1)
    get_data = "python -m transfer get-data food pets --data DATA"
    assert left(tmp_path) == [
        (["coco_det"], reason["reason"]),
        ([TASK, "transfer_linear/food"], f"no food, pets; to get it: {get_data}"),
        (["voc07_svm"], NOT_FINISHED),
    ]
    page = report_page(read_contents(tmp_path), [])
    assert ">0 failed, 1 not supported, 3 requested without a result</a>" in page


def test_without_named_tasks_those_with_data_are_asked_for(rows: Rows, tmp_path: Path) -> None:
    planned = rows(TASK, "transfer_linear/food", names=("mine",), schedule="paper")
    planned[1] = replace(planned[1], state="missing data", missing=("food",))
    results = planned[0].cell.settings.results
    for named, tasks in ((True, [TASK, "transfer_linear/food"]), (False, [TASK])):
        write_requested(planned, named=named, is_local=True)
        assert sorted(task for ours, _ in left(results) for task in ours) == tasks


def test_the_page_shows_it_as_text(tmp_path: Path) -> None:
    record(tmp_path, 79.7)
    assert "Requested, without a result" not in report_page(read_contents(tmp_path), [])
    unsupported = {"state": "unsupported", "reason": HOSTILE}
    request(tmp_path, TASK, **unsupported)
    page = report_page(read_contents(tmp_path), [])
    assert ">0 failed, 1 not supported</a>" in page
    assert TASK in page.partition("Requested, without a result")[2]
    assert HOSTILE not in page
