"""What a detector cannot be is said before one is built."""

from dataclasses import replace

import pytest

from transfer.detection.recipe import COCO_FPN, VOC_C4, Recipe
from transfer.detection.torchvision_engine import build_detector


@pytest.mark.parametrize(
    ("recipe", "arch", "message"),
    [
        (COCO_FPN, "vgg16", "known are resnet18"),
        (replace(VOC_C4, finds="masks"), "resnet50", "take neck fpn"),
        (replace(COCO_FPN, extra_norms="moco"), "resnet50", "belong to a c4 detector"),
        (replace(COCO_FPN, anchor_sizes_px=(32, 64)), "resnet50", "one per level"),
    ],
)
def test_impossible_detectors_are_refused(recipe: Recipe, arch: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_detector(recipe, arch=arch, num_classes=3, norm="BN")
