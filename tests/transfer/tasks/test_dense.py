"""The dense tasks: refused encoders, and costs in the plan."""

from pathlib import Path

import pytest
from torch import nn

from tests.transfer.segmentation.solved import solved_segmentation
from transfer import Encoder, evaluate
from transfer.encoders.encoder import random_backbone
from transfer.hours import Measured, gpu_hours
from transfer.tasks import TASKS
from transfer.tasks.segmentation import SegmentationInContext, TwoSizes
from transfer.tasks.task import TaskError

KEYS = [key for key in TASKS if key.startswith(("voc12_seg_linear", "voc12_seg_incontext"))]


@pytest.mark.parametrize("key", KEYS)
def test_an_encoder_without_maps_is_refused_with_the_reason(key: str) -> None:
    layers = nn.Conv2d(3, 8, 4, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    encoder = Encoder.from_module(
        nn.Sequential(*layers), size_px=32, mean=(0.5,) * 3, std=(0.25,) * 3
    )
    assert "has no maps" in TASKS[key].unsupported_reason(encoder)
    with pytest.raises(TaskError, match=r"neither tokens .* nor maps"):
        evaluate(encoder, key)


def test_patches_of_14_px_fill_an_image_of_504_px() -> None:
    encoder = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    encoder.__dict__["maps_stride"] = (14, "")
    task = TASKS["voc12_seg_incontext"].for_backbone(encoder)
    assert isinstance(task, SegmentationInContext)
    assert task.recipe.image_px == 504


def test_hours_of_maps_do_not_depend_on_the_encoders_own_size() -> None:
    backbone = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    assert gpu_hours({"map": 100.0}, backbone, Measured()) == pytest.approx(
        gpu_hours({"forward": 100.0}, backbone, Measured())
    )
    crops = TASKS["voc12_seg_linear"].for_backbone(backbone).units()["map"]
    assert crops == pytest.approx((40_000 * 16 + 2 * 1_449) * (512 / 224) ** 2)


def test_both_sizes_have_scores_and_one_gallery(tmp_path: Path) -> None:
    masks = solved_segmentation(tmp_path, right=True)
    task = TASKS["voc12_seg_incontext"]
    details = task.details(TwoSizes(masks, masks))
    assert details["mIoU_full_size"] == 100.0
    assert details["num_classes_counted"] == 10
