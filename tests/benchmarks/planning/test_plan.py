"""Contents of a plan: states, hours, shared passes."""

from dataclasses import replace

import pytest

from benchmarks.planning.plan import PlannedCell, plan_cell, render_plan, with_shared_heads
from transfer.backbone import Backbone, random_backbone
from transfer.cells.request import Cell, CellSettings


def test_heads_that_another_row_trains_are_counted_once(
    small_backbone: Backbone, settings: CellSettings
) -> None:
    other = replace(random_backbone(arch="resnet18", stem="imagenet", seed=1), name="other")
    keys = ("in1k_linear@jcl", "in1k_linear@lorac", "in1k_linear@uniclr", "in100_linear@jcl")
    rows = [
        PlannedCell(Cell(key=key, backbone=one, seed=seed, settings=settings), "run", (), 2.0)
        for one in (small_backbone, other)
        for seed in (0, 1)
        for key in keys
    ]
    found = with_shared_heads(rows)
    assert [row.gpu_hours for row in found] == [2.0, 0.0, 2.0, 2.0] * 4
    assert found[1].why == "its head is trained by in1k_linear@jcl"
    done = replace(rows[0], state="cached", gpu_hours=0.0)
    assert with_shared_heads([done, *rows[1:4]])[1].gpu_hours == 2.0


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("cifar10_knn", "200 neighbors vote, but cifar10 has 192 training images"),
        ("cifar10_lowshot_knn", "20 neighbors vote, but a bank of 1 % of cifar10 has 6 training"),
    ],
)
def test_too_few_images_are_named_in_the_plan(
    key: str, reason: str, small_backbone: Backbone, settings: CellSettings
) -> None:
    paper = replace(settings, schedule="paper")
    row = plan_cell(Cell(key=key, backbone=small_backbone, seed=0, settings=paper))
    assert row.state == "no data"
    assert reason in render_plan([row])
