"""Which evaluations a process runs, and which it waits for."""

from dataclasses import replace

import pytest

from benchmarks.execution import graph
from benchmarks.execution.graph import Job, job_graph
from tests.benchmarks.conftest import Rows
from transfer.cells.cell import Cell
from transfer.hours import Measured

PASS = ("in100_linear@jcl", "in100_linear@looc")


def shown(jobs: list[Job]) -> list[tuple[list[str], float]]:
    return [([cell.key for cell in job.cells], job.hours) for job in jobs]


def test_cells_that_share_a_pass_are_one_job(rows: Rows) -> None:
    result = rows("objectnet13_eval", PASS[0], "cifar10_knn", PASS[1])
    cached = replace(rows("rotation4_linear")[0], state="cached")
    jobs = job_graph([*result, cached])
    assert shown(jobs) == [(list(PASS), 2.0), (["cifar10_knn"], 1.0), (["objectnet13_eval"], 1.0)]
    assert [[jobs.index(second) for second in job.dependencies] for job in jobs] == [[], [], [0]]


def test_cells_that_read_equal_crops_are_one_job_of_all_backbones(rows: Rows) -> None:
    keys = ("voc07_svm", "voc07_svm@11point", "imagenet_c100_eval", "transfer_linear/dtd")
    jobs = job_graph([*rows(*keys, names=("a", "b")), *rows("cifar10_knn", seeds=2)])
    assert [keys for keys, _ in shown(jobs)] == [
        ["voc07_svm", "voc07_svm@11point"] * 2,
        ["transfer_linear/dtd"] * 2,
        ["cifar10_knn"] * 2,
        ["imagenet_c100_eval"] * 2,
    ]


def test_backbones_of_another_image_size_are_another_job(rows: Rows) -> None:
    first, second = rows("cifar10_knn", names=("a", "b"))
    form = replace(second.cell.backbone.input, size_px=64)
    larger = replace(second.cell, backbone=replace(second.cell.backbone, input=form))
    assert len(job_graph([first, replace(second, cell=larger)])) == 2


def test_each_training_of_a_whole_network_is_one_job(rows: Rows) -> None:
    assert len(job_graph(rows("voc12_seg_fcn", "coco_det", names=("a", "b")))) == 4


def test_few_jobs_share_the_cores_and_memory_of_this_machine(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 8 GPUs and one job, the job has all cores and all memory, in the plan as in the run."""
    shares = []

    def hours_without_cache(cell: Cell, measured: Measured, jobs: int) -> float:
        shares.append(jobs)
        return 16.0

    monkeypatch.setattr(graph, "decoding_hours", hours_without_cache)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(16))
    five = [replace(row, core_hours=1.0) for row in rows("in100_knn", names=tuple("abcde"))]
    (job,) = job_graph(graph.with_hours_of_this_machine(five, 8))
    assert job.hours == 5.0  # with a share of 2 cores, it would wait 8 h for images
    assert dict.fromkeys(shares) == dict.fromkeys([8, 1])
    training = rows("coco_det")
    assert graph.with_hours_of_this_machine(training, 8) == training
    assert not graph.with_hours_of_this_machine([], 8)
