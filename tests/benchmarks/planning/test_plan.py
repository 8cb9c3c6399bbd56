"""Contents of a plan: states, hours, shared passes."""

from dataclasses import replace

from benchmarks.planning.plan import plan_cell, render_plan, with_passes_counted_once
from tests.benchmarks.conftest import Rows
from transfer.backbone import Backbone
from transfer.cells.request import Cell, CellSettings


def test_heads_that_another_row_trains_are_counted_once(rows: Rows) -> None:
    keys = ("in1k_linear@jcl", "in1k_linear@lorac", "in1k_linear@uniclr", "in100_linear@jcl")
    planned = rows(*keys, names=("one", "other"), seeds=2, hours=2.0)
    found = with_passes_counted_once(planned)
    assert [row.gpu_hours for row in found] == [*[2.0] * 2, *[0.0] * 4, *[2.0] * 2] * 2
    assert found[2].why == found[4].why == "its head is trained by in1k_linear@jcl"
    done = replace(planned[0], state="cached", gpu_hours=0.0)
    assert with_passes_counted_once([done, planned[2]])[1].gpu_hours == 2.0


def test_a_longer_probe_of_a_pass_costs_what_it_takes_beyond_the_others(rows: Rows) -> None:
    planned = rows(*(f"in100_linear@{reading}" for reading in ("jcl", "looc", "lorac")))
    planned[1] = replace(planned[1], gpu_hours=2.5)
    found = with_passes_counted_once(planned)
    assert [row.gpu_hours for row in found] == [1.0, 1.5, 0.0]
    assert found[1].why == "continues the pass of in100_linear@jcl"
    assert [row.gpu_hours for row in with_passes_counted_once(planned[1:])] == [2.5, 0.0]


def test_too_few_images_are_named_in_the_plan(
    small_backbone: Backbone, settings: CellSettings
) -> None:
    paper = replace(settings, schedule="paper")
    row = plan_cell(Cell(key="cifar10_knn", backbone=small_backbone, seed=0, settings=paper))
    assert row.state == "no data"
    assert "200 training images are needed, but only 192 of cifar10" in render_plan([row])
