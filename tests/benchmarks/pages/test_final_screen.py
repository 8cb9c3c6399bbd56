"""The last screen of a run."""

from pathlib import Path
from typing import Any

from benchmarks.pages.final_screen import final_screen
from benchmarks.pages.published import transfer_tasks
from benchmarks.pages.records import RequestedCell, read_results
from tests.synthetic_records import failure, record

LORAC = {"method": "lorac", "recipe": "lorac/in1k-r50", "epochs": 200.0, "data": "in1k"}
SVM = RequestedCell("mine", "voc07_svm", "co2-2021/1", "paper", 0)


def screen(results: Path, *cells: RequestedCell) -> list[str]:
    return final_screen(read_results(results), cells).splitlines()


def cell(**changes: Any) -> RequestedCell:
    fields = {"backbone": "mine", "task": "voc07_svm", "protocol": "co2-2021/1"}
    return RequestedCell(**{**fields, "schedule": "paper", "seed": 0, **changes})


def test_a_number_stands_beside_the_best_published_one(tmp_path: Path) -> None:
    record(tmp_path, 79.7)
    header, row = screen(tmp_path, SVM)
    assert header.split() == ["task", "metric", "mine", "published", "verdict"]
    assert row.split() == ["voc07_svm", "mAP", "79.7", "85.2", "-"]


def test_a_verdict_is_the_worst_of_those_on_the_task(tmp_path: Path) -> None:
    task = transfer_tasks()[0]
    record(tmp_path, 47.5, task=task, protocol="lorac-2021/1", made_by=LORAC)
    asked = cell(task=task, protocol="lorac-2021/1")
    assert screen(tmp_path, asked)[1].endswith("? undecided [-2.8, +2.2]")
    record(tmp_path, 30.0, task=task, protocol="lorac-2021/1", made_by=LORAC)
    assert screen(tmp_path, asked)[1].endswith("▼ below [-20.2, -15.4]")


def test_seeds_become_a_mean_with_its_deviation(tmp_path: Path) -> None:
    for seed, score in enumerate((70.0, 72.0)):
        record(tmp_path, score, seed=seed)
    assert " 71.0 ± 1.4 " in screen(tmp_path, SVM, cell(seed=1))[1]


def test_a_failed_cell_shows_its_reason(tmp_path: Path) -> None:
    failure(tmp_path, "voc07_svm", "CUDA out of memory")
    lines = screen(tmp_path, SVM)
    assert "failed" in lines[1]
    assert lines[-1] == "failed  mine  voc07_svm  CUDA out of memory"


def test_the_newest_of_two_records_under_unlike_conditions_counts(tmp_path: Path) -> None:
    record(tmp_path, 33.8, hash="a", finished="2026-01-01T00:00:00Z")
    record(tmp_path, 43.8, hash="b", finished="2026-01-02T00:00:00Z", small="excerpt")
    assert " 43.8 " in screen(tmp_path, SVM)[1]


def test_a_verdict_stays_with_its_protocol(tmp_path: Path) -> None:
    task = transfer_tasks()[0]
    record(tmp_path, 30.0, task=task, protocol="lorac-2021/1", made_by=LORAC)
    record(tmp_path, 30.0, task=task, protocol="other/1", made_by=LORAC)
    lines = screen(tmp_path, *(cell(task=task, protocol=p) for p in ("lorac-2021/1", "other/1")))
    assert ["below" in line for line in lines[1:]] == [True, False]


def test_a_verdict_in_a_row_of_its_own_is_that_of_its_checkpoint(tmp_path: Path) -> None:
    task = transfer_tasks()[0]
    scores = {f"run{number}": score for number, score in enumerate((47.5, 30.0, 47.5, 47.5, 47.5))}
    scores["bad"] = 30.0
    for name, score in scores.items():
        told = {"backbone": name, "sha256": f"{name:0>64}", "made_by": LORAC}
        record(tmp_path, score, task=task, protocol="lorac-2021/1", **told)
    asked = [cell(backbone=name, task=task, protocol="lorac-2021/1") for name in scores]
    below = ["▼ below" in line for line in screen(tmp_path, *asked)[1:]]
    assert below == [False, True, False, False, False, True]
