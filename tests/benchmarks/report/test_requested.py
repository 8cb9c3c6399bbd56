"""What runs were asked for stands before everything else that could be run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.execution.ending import remember_request
from benchmarks.report_parts.page import report_page
from benchmarks.report_parts.requested import (
    FILE,
    NOT_FINISHED,
    Requested,
    not_run,
    remember_requested,
)
from benchmarks.results.contents import read_contents
from benchmarks.results.published import transfer_tasks
from benchmarks.results.records import read_results
from tests.benchmarks.conftest import Rows
from tests.benchmarks.report.complete_records import HOSTILE
from tests.synthetic_records import failure, record

SVM = Requested(backbone="mine", key="voc07_svm", protocol="co2-2021/1", schedule="paper", seed=0)
TASK = transfer_tasks()[0]


def asked(key: str, **changes: Any) -> Requested:
    return replace(SVM, key=key, **({"protocol": "lorac-2021/1"} | changes))


def left(results: Path) -> list[tuple[tuple[str, ...], str]]:
    return [(group.tasks, group.reason) for group in not_run(results, read_results(results).runs)]


def test_only_what_has_no_result_is_left_and_a_foreign_file_asks_for_nothing(
    tmp_path: Path,
) -> None:
    record(tmp_path, 79.7)
    failure(tmp_path, TASK, "no such file")
    remember_requested(tmp_path, [SVM, asked(TASK), asked("transfer_linear/food", data=("food",))])
    assert left(tmp_path) == [(("transfer_linear/food",), "no food")]
    cells = '{"format": "ssl-requested/1", "cells": [1]}'
    for text in ("", "[]", '{"format": "other"}', cells):
        (tmp_path / "report" / FILE).write_text(text)
        assert left(tmp_path) == []


def test_each_reason_has_what_to_do(tmp_path: Path) -> None:
    requests = [
        SVM,
        asked("coco_det", protocol="jcl-2020/1", why="its strides are not 4 to 32"),
        asked("transfer_linear/food", data=("food",), seed=0),
        asked(TASK, data=("aircraft",), seed=1),
    ]
    remember_requested(tmp_path, requests)
    stopped, unfit, absent = not_run(tmp_path, read_results(tmp_path).runs)
    assert stopped.reason == NOT_FINISHED
    command = "python benchmarks/run_all.py --ckpt FILE --name mine --data DATA --tasks"
    assert stopped.command == f"{command} voc07_svm"
    assert (unfit.reason, unfit.command) == ("its strides are not 4 to 32", "")
    assert absent.reason == "no food, aircraft"
    assert absent.command == f"{command} transfer_linear/food,{TASK} --seeds 0,1"
    assert absent.how_to_get == ["python -m transfer get-data food aircraft --data DATA"]


def test_without_named_tasks_those_with_data_are_asked_for(rows: Rows, tmp_path: Path) -> None:
    planned = rows(TASK, "transfer_linear/food", names=("mine",), schedule="paper")
    planned[1] = replace(planned[1], state="no data", missing=("food",))
    for named, tasks in ((True, [TASK, "transfer_linear/food"]), (False, [TASK])):
        remember_request(planned, tmp_path, named=named)
        assert [task for own, _ in left(tmp_path) for task in own] == tasks


def test_the_page_shows_it_as_text(tmp_path: Path) -> None:
    record(tmp_path, 79.7)
    assert "Asked for, without a result" not in report_page(read_contents(tmp_path))
    remember_requested(tmp_path, [asked(TASK, backbone=HOSTILE, why=HOSTILE)])
    page = report_page(read_contents(tmp_path))
    assert TASK in page.partition("Asked for, without a result")[2]
    assert HOSTILE not in page
