"""Detection and segmentation: errors, messages, and complete runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from tests.transfer.detection.scenes import scene
from tests.transfer.detection.tiny_training import tiny_scenes
from transfer.cells.cell import Cell, deviations
from transfer.cells.execution import evaluate
from transfer.cells.request import Settings
from transfer.datasets.expected import DataError
from transfer.datasets.folders import Folders
from transfer.datasets.scenes import Scenes
from transfer.encoders.architectures import STEMS
from transfer.encoders.encoder import Encoder, random_backbone
from transfer.finetuning.options import TrainingOptions
from transfer.tasks import TASKS, recipe_training
from transfer.tasks.detection import TASKS as DETECTORS
from transfer.tasks.detection import Detection
from transfer.tasks.task import NamedTask, TaskError

CPU = TrainingOptions(engine="torchvision", gpus=1)


def cell(key: str, backbone: Encoder, settings: Settings, options: TrainingOptions = CPU) -> Cell:
    return Cell.with_backbone(
        task=key, backbone=backbone, seed=0, settings=replace(settings, training=options)
    )


def test_backbones_that_no_network_can_be_built_on_are_refused(settings: Settings) -> None:
    stems = [("resnet18", stem, f"the {stem} stem") for stem in STEMS if stem != "imagenet"]
    for key in ("coco_det", "voc12_seg_fcn"):
        for arch, stem, reason in (*stems, ("resnet18-heads4", "imagenet", "head")):
            backbone = random_backbone(arch=arch, stem=stem, seed=0)  # type: ignore[arg-type]
            requested = cell(key, backbone, settings)
            assert reason in requested.task.unsupported_reason(backbone)


def test_detectron2_asked_for_and_absent_says_how_to_install_it(
    small_backbone: Encoder, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transfer.detection.engines.is_available", lambda: False)
    requested = cell("coco_det", small_backbone, settings, TrainingOptions(engine="detectron2"))
    with pytest.raises(ValueError, match=r"detectron2 cannot be imported.*github"):
        _ = requested.task.engine


def test_an_altered_recipe_is_told_in_one_sentence(
    small_backbone: Encoder, settings: Settings
) -> None:
    paper = replace(settings, schedule="paper")
    options = TrainingOptions(gpus=1, iterations=300, image_px=129, learning_rates=(0.02,))
    output = (
        "recipe: crop_px 129 instead of 513, iterations 300 instead of 33069, "
        "milestones (210, 270) instead of (23148, 29762), learning_rate 0.02 instead of 0.003"
    )
    assert deviations(cell("voc12_seg_fcn", small_backbone, paper, options)) == [output]


def test_ablation_selects_among_its_learning_rates(
    small_backbone: Encoder, settings: Settings
) -> None:
    task = NamedTask("coco_det", TASKS["coco_det"])
    search = {"variant": "search", "changes": {"learning_rates": (0.02, 0.01)}}
    for inputs, compared in (((), (0.02, 0.01)), ((0.3, 0.1), (0.3, 0.1)), ((0.05,), ())):
        options = replace(CPU, learning_rates=inputs)
        result: Any = cell("coco_det", small_backbone, settings, options).with_request(**search)
        assert result.task.learning_rates == compared
    with pytest.raises(TaskError, match="has no engine_choice"):
        task.ablation("other engine", engine_choice="torchvision")


def all_aside(scenes: Scenes) -> Scenes:
    """The split with crowds or difficult objects alone."""
    arrays = replace(scenes.arrays, aside=np.ones_like(scenes.arrays.aside))
    return Scenes(
        scenes.source.folder, arrays, scenes.class_names, category_ids=scenes.category_ids
    )


def test_crowds_are_neither_learned_nor_found(tmp_path: Path) -> None:
    scenes, task = tiny_scenes(tmp_path), DETECTORS["coco_det"]
    for is_test in (False, True):
        assert task.unusable_reason(scenes, is_test=is_test) == ""
        reason = task.unusable_reason(all_aside(scenes), is_test=is_test)
        assert "21 of 21 objects on 7 images are crowds" in reason


def test_difficult_objects_are_learned_but_not_found(tmp_path: Path) -> None:
    scenes, task = all_aside(tiny_scenes(tmp_path, coco=False)), DETECTORS["voc0712_det_c4"]
    assert task.unusable_reason(scenes, is_test=False) == ""
    reason = task.unusable_reason(scenes, is_test=True)
    assert "21 of 21 objects on 7 images are difficult" in reason


def test_objects_without_labeled_keypoints_are_not_trained_on(tmp_path: Path) -> None:
    scenes, task = tiny_scenes(tmp_path), DETECTORS["coco_keypoint"]
    assert task.unusable_reason(scenes, is_test=False) == ""
    scenes.arrays.keypoints[:] = 0
    reason = task.unusable_reason(scenes, is_test=False)
    assert "7 of 21 objects on 7 images are crowds, the others have no labeled keypoint" in reason


def test_images_without_objects_are_nothing_to_learn(tmp_path: Path) -> None:
    empty = Scenes(tmp_path, [scene("0.jpg", 0, 60, 40)], ("a",))
    reason = DETECTORS["voc0712_det_c4"].unusable_reason(empty, is_test=False)
    assert "0 of 0 objects on 1 images" in reason


@pytest.mark.parametrize("bad", ["trainval", "test", "train", "val"])
def test_a_part_without_objects_is_refused_before_a_network_is_built(
    bad: str, small_backbone: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes = tiny_scenes(tmp_path)

    def opened(key: str, data: Path, split: str) -> Scenes:
        return all_aside(scenes) if split == bad else scenes

    monkeypatch.setattr(recipe_training, "open_any", opened)
    monkeypatch.setattr(Detection, "build", Mock(side_effect=AssertionError))
    task = replace(DETECTORS["coco_det"], learning_rates=(0.02, 0.01))
    with pytest.raises(DataError, match=f"coco17, {bad}: .*21 of 21 .* are crowds") as error:
        task.prepare(small_backbone, Folders(tmp_path, tmp_path, tmp_path))
    assert ("--learning-rates 0.02" in str(error.value)) == (bad in ("train", "val"))


@pytest.mark.slow
def test_learning_rates_are_tried_on_held_out_training_images(
    small_backbone: Encoder, settings: Settings
) -> None:
    options = replace(CPU, learning_rates=(0.02, 0.001))
    record = evaluate(cell("coco_det", small_backbone, settings, options))
    assert set(record.details["held_out_AP"]) == {"0.02", "0.001"}
    assert record.details["learning_rate"] in (0.02, 0.001)
    assert any("learning_rates" in line for line in record.departures)
