"""The detection tasks: what they refuse, what they tell, and a whole run that learns."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from transfer.backbone import Backbone, BackboneError, random_backbone
from transfer.cells.departures import departures
from transfer.cells.execution import evaluate, finished
from transfer.cells.request import Cell, CellSettings
from transfer.convert.architectures import STEMS, Stem
from transfer.finetuning.options import TrainingOptions
from transfer.tasks import TASKS
from transfer.tasks.detection import Detection

DETECTION = {k: t for k, t in TASKS.items() if isinstance(t, Detection)}
CPU = TrainingOptions(engine="torchvision", gpus=1)


def cell(
    key: str, backbone: Backbone, settings: CellSettings, options: TrainingOptions = CPU
) -> Cell:
    return Cell(key=key, backbone=backbone, seed=0, settings=replace(settings, training=options))


@pytest.mark.parametrize("stem", [stem for stem in STEMS if stem != "imagenet"])
def test_every_stem_but_imagenets_is_unfit(stem: Stem, settings: CellSettings) -> None:
    backbone = random_backbone(arch="resnet18", stem=stem, seed=0)
    asked = cell("coco_det", backbone, settings)
    with pytest.raises(BackboneError, match=f"no network can be built on it: the {stem} stem"):
        asked.task.prepare(backbone, asked.folders)


def test_detectron2_asked_for_and_absent_says_how_to_install_it(
    small_backbone: Backbone, settings: CellSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transfer.detection.engines.is_available", lambda: False)
    asked = cell("coco_det", small_backbone, settings, TrainingOptions(engine="detectron2"))
    with pytest.raises(ValueError, match=r"detectron2 cannot be imported here.*github"):
        _ = asked.task.engine


def test_an_altered_recipe_is_told_in_one_sentence(
    small_backbone: Backbone, settings: CellSettings
) -> None:
    paper = replace(settings, schedule="paper")
    options = TrainingOptions(gpus=1, batch_size=8)
    told = departures(cell("voc0712_det_c4", small_backbone, paper, options))
    assert told == [
        "recipe: iterations 48000 instead of 24000, milestones (36000, 44000) instead of "
        "(18000, 22000), learning_rate 0.01 instead of 0.02, warmup_iterations 200 instead of 100, "
        "batch_size 8 instead of 16"
    ]


@pytest.mark.slow
def test_learning_rates_are_tried_on_held_out_training_images(
    small_backbone: Backbone, small_data: Path, settings: CellSettings
) -> None:
    options = replace(CPU, learning_rates=(0.02, 0.001))
    settings = replace(settings, data=small_data)
    record = evaluate(cell("coco_det", small_backbone, settings, options))
    assert set(record.details["held_out_AP"]) == {"0.02", "0.001"}
    assert record.details["learning_rate"] in (0.02, 0.001)
    assert any("learning_rates" in line for line in record.departures)


@pytest.mark.slow
def test_a_record_tells_norms_sizes_and_classes(
    small_backbone: Backbone, small_data: Path, settings: CellSettings
) -> None:
    asked = cell("coco_insseg", small_backbone, replace(settings, data=small_data))
    record = evaluate(asked)
    assert set(record.metrics) == {"AP", "AP50", "AP75"}
    assert set(record.details["precisions"]) == {"segm", "bbox"}
    assert record.details["norm"] == "BN"
    assert record.engine == "torchvision"
    assert finished(asked) == record
    assert json.loads(asked.path.read_text())["details"]["tensors_placed"] == 120
