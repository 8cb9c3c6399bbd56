"""The published numbers, and what becomes of them in shorter runs."""

import pytest

from transfer.detection.recipe import (
    COCO_4CONV1FC_MASKS,
    COCO_FPN,
    COCO_FPN_KEYPOINTS,
    VOC_C4,
    VOC_C4_MOCO,
    VOC_C4_NONE,
    DetectorRecipe,
)
from transfer.finetuning.options import of_length


def test_coco_is_the_1x_schedule() -> None:
    assert (COCO_FPN.iterations, COCO_FPN.milestones) == (90_000, (60_000, 80_000))
    assert (COCO_FPN.learning_rate, COCO_FPN.batch_size, COCO_FPN.weight_decay) == (0.02, 16, 1e-4)
    assert (COCO_FPN.train_short_px[0], COCO_FPN.train_short_px[-1]) == (640, 800)
    assert (COCO_FPN.test_short_px, COCO_FPN.long_px) == (800, 1333)


def test_keypoints_have_a_smooth_box_loss_and_more_proposals() -> None:
    assert COCO_FPN_KEYPOINTS.box_smooth_l1_beta == 0.5
    assert COCO_FPN_KEYPOINTS.rpn_proposals == (1500, 1000)
    assert COCO_FPN_KEYPOINTS.iterations == COCO_FPN.iterations


def test_voc_is_24k_iterations_with_the_norm_that_is_asked_for() -> None:
    assert (VOC_C4.iterations, VOC_C4.milestones) == (24_000, (18_000, 22_000))
    assert VOC_C4.warmup_iterations == 100
    assert VOC_C4.train_short_px == (480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800)
    assert [r.extra_norms for r in (VOC_C4, VOC_C4_MOCO, VOC_C4_NONE)] == ["co2", "moco", "none"]
    assert VOC_C4.synchronized_norm == "naiveSyncBN"


def test_four_convolutions_have_norms_in_box_and_mask_heads() -> None:
    assert set(COCO_4CONV1FC_MASKS.normed) == {"fpn", "box_head", "mask_head"}
    assert (COCO_4CONV1FC_MASKS.box_head_convs, COCO_4CONV1FC_MASKS.box_head_fcs) == (4, 1)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.001])
@pytest.mark.parametrize("recipe", [COCO_FPN, VOC_C4])
def test_a_shorter_run_ends_its_warm_up_before_the_first_drop(
    recipe: DetectorRecipe, share: float
) -> None:
    short = of_length(recipe, share)
    assert short.iterations == round(recipe.iterations * share)
    assert short.warmup_iterations < short.milestones[0]
    assert short.learning_rate == recipe.learning_rate
