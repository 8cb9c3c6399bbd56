"""The renaming of detectron2's tensors is total."""

import pytest
import torch

from tests.transfer.detection.same_weights import to_torchvision, torchvision_name
from transfer.detection.recipe import COCO_4CONV1FC, COCO_FPN


def test_a_name_without_a_rule_is_an_error() -> None:
    for name in ("roi_heads.box_head.conv1.gain.weight", "backbone.res2.0.conv9.weight", "x"):
        with pytest.raises(ValueError, match="no rule"):
            torchvision_name(name, COCO_FPN)


def test_layers_stand_behind_the_convolutions_and_the_flattening() -> None:
    name = "rcnn.roi_heads.box_head.fc2.bias"
    assert torchvision_name(name, COCO_FPN) == "box_head.3.bias"
    assert torchvision_name(name.replace("2", "1"), COCO_4CONV1FC) == "box_head.5.bias"


def test_a_detector_of_other_classes_is_an_error() -> None:
    scores = {"roi_heads.box_predictor.cls_score.bias": torch.zeros(81)}
    assert list(to_torchvision(scores, COCO_FPN, 80)) == ["box_predictor.classes.bias"]
    with pytest.raises(ValueError, match="expected 21"):
        to_torchvision(scores, COCO_FPN, 20)
