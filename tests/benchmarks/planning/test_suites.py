"""A suite contains the tasks of a paper's tables."""

import pytest

from benchmarks.planning.cells import suites, task_keys
from benchmarks.results.published import AVERAGE, ELSEWHERE, papers
from benchmarks.run_all import main
from transfer.datasets.catalog import DATASETS
from transfer.getting.command import SUITES
from transfer.tasks import TASKS, TaskError, reading_of, task_of

SIZES = {"jcl": 5, "co2": 9, "lorac": 21, "uniclr": 7, "looc": 7, "dino": 2, "nnclr": 6, "ressl": 1}
"""Tasks of each paper, counted in its sheet."""


def test_a_suite_has_the_tasks_of_its_papers_tables() -> None:
    for paper in papers():
        named = {task for task, _ in paper.reported} - {AVERAGE}
        suite = suites()[paper.id]
        also = {reading_of(key)[0] for key in paper.also}
        assert {reading_of(key)[0] for key in suite} == named | also, paper.id
        assert len(suite) == SIZES.get(paper.id, len(suite)), paper.id


def test_a_task_id_means_all_its_readings() -> None:
    keys = task_keys("in100_linear", "")
    assert keys == [key for key in TASKS if key.startswith("in100_linear@")]
    assert task_keys("voc07_svm", "") == ["voc07_svm", "voc07_svm@11point"], "an id and a key"
    assert task_keys("", "") == [key for key, task in TASKS.items() if task.by_default]
    assert task_keys("cifar10_knn,in100_knn", "", "in100_knn") == ["cifar10_knn"]


def test_groups_patterns_and_papers_name_tasks() -> None:
    twelve = [key for key in TASKS if key.startswith("transfer_linear/")]
    assert task_keys("transfer_linear", "") == task_keys("transfer_linear/*", "") == twelve
    assert len(twelve) == 12
    assert task_keys("*_knn", "") == [key for key in TASKS if key.endswith("_knn")]
    assert task_keys("jcl,cifar10_knn", "") == [*suites()["jcl"], "cifar10_knn"]
    assert task_keys("", "lorac") == task_keys("lorac", "") == list(suites()["lorac"])
    assert task_keys("transfer_linear", "", "transfer_linear/[a-o]*") == twelve[-3:]


@pytest.mark.parametrize("args", [["--tasks", ""], ["--tasks="], ["--tasks", ","], ["--suite="]])
def test_empty_list_of_tasks_is_refused(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*args, "--random", "--plan", "--data", "nowhere"]) == 2
    assert f"error: {args[0].rstrip('=')} " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "output"),
    [("transfer_linear", "transfer_linear/pets"), ("in1k_linear", "6"), ("lorac", "paper")],
)
def test_one_task_is_not_a_group(name: str, output: str) -> None:
    with pytest.raises(TaskError, match=f"{output}.*run_all.py --tasks '{name}'"):
        task_of(name)


def test_get_data_gets_what_a_suite_needs() -> None:
    for name, data_sets in SUITES.items():  # the plan of another paper names its own
        needed = {data for key in suites()[name] for data in task_of(key).datasets()}
        assert {data for data in needed if DATASETS[data].sources} <= set(data_sets), name


def test_every_published_number_has_a_task_with_its_protocol() -> None:
    requested = {pair for paper in papers() for pair in paper.reported if pair[0] != AVERAGE}
    rows = [row for paper in papers() for table in paper.tables for row in table.rows]
    requested |= {pair for row in rows for pair in row.protocols.items() if pair[1] != ELSEWHERE}
    offered = {(reading_of(k)[0], task.protocol.partition("/")[0]) for k, task in TASKS.items()}
    assert requested <= offered
