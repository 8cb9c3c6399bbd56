"""The published numbers, and what becomes of them in shorter runs."""

import pytest

from transfer.detection.recipe import (
    COCO_4CONV1FC_MASKS,
    COCO_FPN,
    VOC_C4,
)
from transfer.finetuning.options import of_length


def test_four_convolutions_have_norms_in_box_and_mask_heads() -> None:
    assert set(COCO_4CONV1FC_MASKS.normed) == {"fpn", "box_head", "mask_head"}
    assert (COCO_4CONV1FC_MASKS.box_head_convs, COCO_4CONV1FC_MASKS.box_head_fcs) == (4, 1)


def test_a_shorter_run_ends_its_warm_up_before_the_first_drop(subtests: pytest.Subtests) -> None:
    for share in [0.5, 0.1, 0.001]:
        for recipe in [COCO_FPN, VOC_C4]:
            with subtests.test(share=share, recipe=recipe):
                short = of_length(recipe, share)
                assert short.iterations == round(recipe.iterations * share)
                assert short.warmup_iterations < short.milestones[0]
                assert short.learning_rate == recipe.learning_rate
