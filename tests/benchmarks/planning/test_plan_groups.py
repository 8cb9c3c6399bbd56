"""The plan on one screen."""

from dataclasses import replace

import pytest

from benchmarks.planning.plan import (
    PlannedCell,
    State,
    render_plan_groups,
    with_jobs_and_hours,
)
from transfer.cells.cell import Cell
from transfer.cells.request import Settings
from transfer.encoders.encoder import Encoder
from transfer.hours import Measured, gpu_hours
from transfer.tasks import default_tasks


def planned(
    key: str, backbone: Encoder, settings: Settings, state: State = "run", hours: float = 1.5
) -> PlannedCell:
    cell = Cell.with_backbone(task=key, backbone=backbone, seed=0, settings=settings)
    if state == "missing data":
        return PlannedCell(
            cell, state, cell.task.datasets(), gpu_hours(cell.task.units(), backbone, Measured())
        )
    return PlannedCell(cell, state, (), hours * (state == "run"))


def test_plan_counts_cells_and_hours_by_group(small_backbone: Encoder, settings: Settings) -> None:
    unsupported = planned("coco_det", small_backbone, settings, "unsupported")
    rows = [
        planned("cifar10_knn", small_backbone, settings),
        planned("in100_knn", small_backbone, settings, "cached"),
        planned("transfer_linear/cars", small_backbone, settings, "missing data"),
        replace(unsupported, reason="heads are not a ResNet"),
    ]
    header, neighbors, transfer, _, total, *lines = render_plan_groups(rows).splitlines()
    assert header.split()[-1] == "hours"
    assert neighbors.split() == ["Nearest", "neighbors", "2", "1", "1", "-", "-", "1.50"]
    later = gpu_hours(rows[2].cell.task.units(), small_backbone, Measured())
    assert transfer.split() == ["Linear", "transfer", "1", "-", "-", "1", "-", f"({later:.2f})"]
    assert total.split() == ["all", "4", "1", "1", "1", "1", "1.50", f"({later:.2f})"]
    assert "missing data (GPU hours in brackets): cars" in lines
    assert "coco_det: heads are not a ResNet" in lines

    # a pass over missing data counts once
    readings = ["in1k_linear@jcl", "in1k_linear@co2"]
    rows = [planned(key, small_backbone, settings, "missing data") for key in readings]
    hours = [row.gpu_hours for row in rows]
    priced = with_jobs_and_hours(rows, 1, 1)
    assert sum(row.gpu_hours for row in priced) == pytest.approx(max(hours))
    assert [row.reason for row in priced] == ["", ""]


def test_plan_of_all_tasks_fits_a_screen(
    small_backbone: Encoder, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [planned(key, small_backbone, settings) for key in default_tasks()]
    lines = render_plan_groups(rows).splitlines()
    assert len(lines) <= 24
    notes = [line.partition(":")[0] for line in lines if "needs a GPU with at least" in line]
    assert sorted(notes) == ["detection", "segmentation", "semi-supervised"]
