"""Detection and segmentation: what both refuse and tell, and whole runs of detectors."""

from dataclasses import replace
from typing import Any

import pytest

from transfer.backbone import Backbone, random_backbone
from transfer.cells.execution import evaluate
from transfer.cells.request import Cell, CellSettings, departures
from transfer.convert.architectures import STEMS
from transfer.finetuning.options import TrainingOptions
from transfer.tasks import TASKS
from transfer.tasks.task import NamedTask, TaskError

CPU = TrainingOptions(engine="torchvision", gpus=1)


def cell(
    key: str, backbone: Backbone, settings: CellSettings, options: TrainingOptions = CPU
) -> Cell:
    return Cell(key=key, backbone=backbone, seed=0, settings=replace(settings, training=options))


def test_backbones_that_no_network_can_be_built_on_are_refused(settings: CellSettings) -> None:
    stems = [("resnet18", stem, f"the {stem} stem") for stem in STEMS if stem != "imagenet"]
    for key in ("coco_det", "voc12_seg_fcn"):
        for arch, stem, why in (*stems, ("resnet18-heads4", "imagenet", "head")):
            backbone = random_backbone(arch=arch, stem=stem, seed=0)  # type: ignore[arg-type]
            asked = cell(key, backbone, settings)
            assert why in asked.task.unfit(backbone)


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
    options = TrainingOptions(gpus=1, iterations=300, image_px=129, learning_rates=(0.02,))
    told = (
        "recipe: crop_px 129 instead of 513, iterations 300 instead of 33069, "
        "milestones (210, 270) instead of (23148, 29762), learning_rate 0.02 instead of 0.003"
    )
    assert departures(cell("voc12_seg_fcn", small_backbone, paper, options)) == [told]


def test_an_ablation_compares_its_own_rates_unless_others_are_asked_and_has_no_options(
    small_backbone: Backbone, settings: CellSettings
) -> None:
    task = NamedTask("coco_det", TASKS["coco_det"])
    ablation = task.ablation("search", learning_rates=(0.02, 0.01)).task
    for given, compared in (((), (0.02, 0.01)), ((0.3, 0.1), (0.3, 0.1)), ((0.05,), ())):
        options = replace(CPU, learning_rates=given)
        found: Any = replace(cell("coco_det", small_backbone, settings, options), ablation=ablation)
        assert found.task.learning_rates == compared
    with pytest.raises(TaskError, match="has no engine_choice"):
        task.ablation("other engine", engine_choice="torchvision")


@pytest.mark.slow
def test_learning_rates_are_tried_on_held_out_training_images(
    small_backbone: Backbone, settings: CellSettings
) -> None:
    options = replace(CPU, learning_rates=(0.02, 0.001))
    record = evaluate(cell("coco_det", small_backbone, settings, options))
    assert set(record.details["held_out_AP"]) == {"0.02", "0.001"}
    assert record.details["learning_rate"] in (0.02, 0.001)
    assert any("learning_rates" in line for line in record.departures)
