"""A whole network in two processes: one record, written once."""

from dataclasses import replace
from pathlib import Path

import pytest

from transfer.backbone import Backbone
from transfer.cell import Cell, Place, finished
from transfer.many_gpus import evaluate_where_asked
from transfer.training.options import TrainingOptions

TWO = TrainingOptions(gpus=2)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["coco_insseg", "voc0712_det_c4", "voc12_seg_fcn"])
def test_two_processes_share_batch_norms_and_test_images(
    key: str, small_backbone: Backbone, small_detection_data: Path, place: Place
) -> None:
    place = replace(place, data=small_detection_data, training=TWO)
    cell = Cell(key=key, backbone=small_backbone, seed=0, place=place)
    record = evaluate_where_asked(cell)
    assert (record.details["norm"], record.details["num_processes"]) == ("naiveSyncBN", 2)
    assert record.details["num_test"] == record.data[cell.task.datasets()[0]]["counts"]["test"]
    assert finished(cell) == record


@pytest.mark.slow
def test_processes_that_fail_leave_a_reason(
    small_backbone: Backbone, place: Place, tmp_path: Path
) -> None:
    place = replace(place, data=tmp_path / "nothing", training=TWO)
    cell = Cell(key="coco_det", backbone=small_backbone, seed=0, place=place)
    with pytest.raises(RuntimeError, match="2 processes ended with status 1 and without a record"):
        evaluate_where_asked(cell)
