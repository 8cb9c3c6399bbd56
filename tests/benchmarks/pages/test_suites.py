"""The suites are the tasks of the published tables, and the built ones are those of TASKS."""

import pytest

from benchmarks.pages.paper_page import tasks_of
from benchmarks.pages.published import Paper, published
from benchmarks.pages.suites import AVERAGE, BUILT_TASKS, SUITES, TRANSFER, primary_metric
from transfer.tasks import TASKS, default_tasks, reading_of

FIGURES_ONLY = {
    "uniclr": {"cifar10_knn", "cifar100_knn"},
    "co2": {"in100_linear"},
}
"""Tasks of figures and of the running text."""


@pytest.mark.parametrize("paper", published(), ids=lambda paper: paper.id)
def test_a_suite_has_the_tasks_of_its_papers_tables(paper: Paper) -> None:
    named = {task for table in paper.tables for task in tasks_of(table)}
    suite = {reading_of(key)[0] for key in SUITES[paper.id]}
    figures = FIGURES_ONLY.get(paper.id, set())
    assert figures <= suite
    assert suite - figures == named


def test_built_tasks_are_those_of_the_registry() -> None:
    assert set(BUILT_TASKS) == {reading_of(key)[0] for key in default_tasks()}


def test_suites_name_registered_readings() -> None:
    built = [key for keys in SUITES.values() for key in keys if reading_of(key)[0] in BUILT_TASKS]
    assert set(built) <= set(TASKS)


def test_columns_ask_for_protocols_that_tasks_have() -> None:
    asked = {
        (task, column.protocol)
        for paper in published()
        for table in paper.tables
        for column in table.columns
        for task in {column.task} | {row.task for row in table.rows}
        if task in BUILT_TASKS
    }
    offered = {(reading_of(k)[0], task.protocol.partition("/")[0]) for k, task in TASKS.items()}
    assert asked <= offered


def test_a_primary_metric_is_what_its_column_shows() -> None:
    shown = {
        (column.task, column.metric)
        for paper in published()
        for table in paper.tables
        for column in table.columns
    }
    for task in (*TRANSFER, AVERAGE, "voc07_svm", "coco_det", "voc12_seg_fcn"):
        assert (task, primary_metric(task)) in shown
