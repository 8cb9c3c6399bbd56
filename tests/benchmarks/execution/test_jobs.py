"""Which cells one process works on, and what it waits for, here and on a cluster."""

from dataclasses import replace

import pytest

from benchmarks.execution.jobs import Job, evaluations, extractions
from pretrain.running.command_line import parse
from tests.benchmarks.conftest import Rows
from transfer.cells.request import Request

PASS = ("in100_linear@jcl", "in100_linear@looc")


def shown(jobs: list[Job]) -> list[tuple[list[str], float]]:
    return [([cell.key for cell in job.cells], job.hours) for job in jobs]


def test_cells_of_one_pass_are_one_job_and_users_of_classifiers_come_last(rows: Rows) -> None:
    found = rows("objectnet13_eval", PASS[0], "cifar10_knn", PASS[1])
    cached = replace(rows("rotation4_linear")[0], state="cached")
    jobs = evaluations([*found, cached])
    assert shown(jobs) == [(list(PASS), 2.0), (["cifar10_knn"], 1.0), (["objectnet13_eval"], 1.0)]
    waiting = [[job.waits_for(other) for other in jobs] for job in jobs]
    assert waiting == [[False] * 3, [False] * 3, [True, False, False]]


def test_an_extraction_counts_the_longest_cell_of_each_backbone(rows: Rows) -> None:
    found = rows("voc07_svm", "voc07_svm@11point", "imagenet_c100_eval", names=("a", "b"))
    found[1] = replace(found[1], gpu_hours=5.0)
    jobs = extractions([*found, *rows("cifar10_semi_1pct", seeds=2)])
    assert shown(jobs) == [
        (["voc07_svm", "voc07_svm@11point"], 5.0),
        (["imagenet_c100_eval"] * 2, 2.0),
        (["voc07_svm", "voc07_svm@11point"], 1.0),
    ]
    last = evaluations(found)[-1]
    assert [last.waits_for(job) for job in jobs] == [False, True, False]


@pytest.mark.parametrize("recipe", [None, "", "moco/in1k-r50-v2"])
def test_declared_recipe_reaches_the_process_of_a_cell(rows: Rows, recipe: str | None) -> None:
    # an empty one withdraws the recipe of an earlier run
    row = rows("cifar10_knn")[0]
    checkpoint = replace(row.cell.request.checkpoint, declared=recipe)
    job = Job((replace(row, cell=row.cell.asking(checkpoint=checkpoint)),))
    request = parse(Request, list(job.arguments()), description="")
    assert request.checkpoint.declared == recipe
