"""The segmentation task: broken masks, what it tells, and where its rates are tried."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import jaccard_score

from tests.transfer.segmentation.solved import solved_segmentation
from transfer.backbone import Backbone
from transfer.cells.execution import evaluate
from transfer.cells.request import Cell, CellSettings, finished
from transfer.datasets.catalog import open_segmented
from transfer.datasets.segmented import IGNORED, read_mask
from transfer.finetuning.options import TrainingOptions
from transfer.tasks.segmentation import Predicted, Segmentation

KEY = "voc12_seg_fcn"
CPU = TrainingOptions(gpus=1)


def cell(
    backbone: Backbone, settings: CellSettings, data: Path, options: TrainingOptions = CPU
) -> Cell:
    settings = replace(settings, data=data, training=options)
    return Cell(key=KEY, backbone=backbone, seed=0, settings=settings)


@pytest.mark.slow
def test_the_console_has_our_own_lines_and_nothing_of_mmengines(
    checkpoint: Path, small_data: Path, settings: CellSettings
) -> None:
    words = [sys.executable, "-m", "transfer", KEY, "--ckpt", str(checkpoint), "--gpus", "1"]
    words += ["--data", str(small_data), "--schedule", "smoke"]
    words += ["--results", str(settings.results), "--runs", str(settings.runs)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert re.fullmatch(rf"{KEY}  mIoU .*\.json\n", done.stdout)
    for line in done.stderr.splitlines()[1:]:
        assert re.match(r"\d\d:\d\d:\d\d  (check|weights|train|predict)  +\S", line), line
    (log,) = settings.runs.rglob("mmengine-0.log")
    assert "conv_seg.weight" in log.read_text()


@pytest.mark.slow
def test_the_record_tells_how_and_its_miou_is_scikit_learns_on_the_saved_predictions(
    small_backbone: Backbone, small_data: Path, settings: CellSettings
) -> None:
    asked = cell(small_backbone, settings, small_data)
    record = evaluate(asked)
    details = record.details
    assert (record.engine, details["norm"]) == ("mmsegmentation", "BN")
    assert details["tensors_placed"] == 120
    # float32, 17 layers: 256 eps of each map's largest value
    assert max(details["largest_difference_of_maps"].values()) < 256 * 2**-23
    assert finished(asked) == record
    split = open_segmented("voc12_seg", small_data, "test")
    truth = np.concatenate([split.mask(i).ravel() for i in range(len(split))])
    folder = asked.folders.work / details["predictions"]
    files = [folder / f"{Path(split.name(i)).stem}.png" for i in range(len(split))]
    guess = np.concatenate([read_mask(file).ravel() for file in files])
    kept = truth != IGNORED
    expected = 100 * jaccard_score(truth[kept], guess[kept], average=None, labels=range(21))
    found = [details["IoU_per_class"][name] for name in split.class_names]
    assert found == pytest.approx(expected.tolist())
    assert record.metrics["mIoU"] == pytest.approx(float(expected.mean()))


def test_the_rate_with_the_best_held_out_miou_trains_on_all_images(
    small_backbone: Backbone,
    settings: CellSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainings: list[tuple[object, ...]] = []

    def trained(self: Segmentation, prepared: object, *rest: object) -> Predicted:
        trainings.append(rest[2:])
        (folder := tmp_path / str(len(trainings))).mkdir()
        return solved_segmentation(folder, right=rest[3] == 0.01)

    monkeypatch.setattr(Segmentation, "train", trained)
    prepared: Any = SimpleNamespace(images="all images", held_out="held out")
    options = replace(CPU, learning_rates=(0.1, 0.01, 0.001))
    asked = cell(small_backbone, settings, settings.data, options)
    done = asked.task.run(prepared, asked.folders, 0)
    assert done.details["held_out_mIoU"] == {"0.1": 0.0, "0.01": 100.0, "0.001": 0.0}
    assert trainings[-1] == ("all images", 0.01, "all")
    assert [first for first, *_ in trainings[:-1]] == ["held out"] * 3
