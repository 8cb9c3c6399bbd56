"""The segmentation task: what it prints, and where its rates are tried."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.transfer.segmentation.solved import solved_segmentation
from transfer.cells.cell import Cell
from transfer.cells.request import Settings
from transfer.datasets.segmented import IGNORED, write_mask
from transfer.encoders.encoder import Encoder
from transfer.finetuning.options import TrainingOptions
from transfer.segmentation.masks import Predicted
from transfer.segmentation.recipe import VOC_FCN
from transfer.tasks.segmentation import Segmentation
from transfer.tasks.task import TrainingData

KEY = "voc12_seg_fcn"


@pytest.mark.slow
def test_the_console_has_our_own_lines_and_nothing_of_mmengines(
    checkpoint: Path, small_data: Path, settings: Settings
) -> None:
    args = [sys.executable, "-m", "transfer", KEY, "--ckpt", str(checkpoint), "--gpus", "1"]
    args += ["--data", str(small_data), "--schedule", "smoke"]
    args += ["--results", str(settings.results), "--runs", str(settings.runs)]
    completed = subprocess.run(args, capture_output=True, text=True, check=True)
    assert re.fullmatch(rf"{KEY}  mIoU .*\.json\n", completed.stdout)
    for line in completed.stderr.splitlines()[1:]:
        assert re.match(r"\d\d:\d\d:\d\d  (check|weights|train|predict)  +\S", line), line


def test_masks_without_a_labeled_pixel_are_nothing_to_learn_or_find(tmp_path: Path) -> None:
    task, split = (
        Segmentation(protocol="any", recipe=VOC_FCN),
        solved_segmentation(tmp_path, right=True).split,
    )
    assert task.unusable_reason(split, is_test=False) == ""
    for i in range(len(split)):
        write_mask(tmp_path / split.masks.name(i), np.full((6, 8), IGNORED, dtype=np.uint8))
    assert "masks of 10 images" in task.unusable_reason(split, is_test=True)


def test_the_rate_with_the_best_held_out_miou_trains_on_all_images(
    small_backbone: Encoder,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainings: list[tuple[object, ...]] = []

    def trained(self: Segmentation, data: TrainingData, *rest: object) -> Predicted:
        trainings.append((data.train, *rest[2:]))
        (folder := tmp_path / str(len(trainings))).mkdir()
        return solved_segmentation(folder, right=rest[2] == 0.01)

    monkeypatch.setattr(Segmentation, "train", trained)
    held_out = TrainingData(small_backbone, "held out", None)
    prepared = TrainingData(small_backbone, "all images", None, held_out)
    options = TrainingOptions(gpus=1, learning_rates=(0.1, 0.01, 0.001))
    settings = replace(settings, training=options)
    requested = Cell.with_backbone(task=KEY, backbone=small_backbone, seed=0, settings=settings)
    completed = requested.task.run(prepared, requested.folders, 0)
    assert completed.details["held_out_mIoU"] == {"0.1": 0.0, "0.01": 100.0, "0.001": 0.0}
    assert trainings[-1] == ("all images", 0.01, "all")
    assert [first for first, *_ in trainings[:-1]] == ["held out"] * 3
