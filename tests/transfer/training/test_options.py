"""What a user asks of a detector becomes a recipe, off the paper's where it must."""

from dataclasses import replace

import pytest

from transfer.detection.recipe import COCO_FPN, VOC_C4
from transfer.training.options import TrainingOptions

FEWER = TrainingOptions(images_per_gpu=2)


def test_nothing_asked_changes_nothing() -> None:
    assert TrainingOptions().applied(COCO_FPN, 8) == COCO_FPN


def test_fewer_images_per_gpu_accumulate_the_same_batch() -> None:
    assert FEWER.applied(COCO_FPN, 1) == replace(COCO_FPN, accumulated=8)
    assert FEWER.applied(COCO_FPN, 8) == COCO_FPN


def test_another_batch_scales_rate_and_length_linearly() -> None:
    scaled = TrainingOptions(batch_size=8).applied(VOC_C4, 1)
    assert (scaled.learning_rate, scaled.iterations) == (0.01, 48_000)
    assert (scaled.milestones, scaled.warmup_iterations) == ((36_000, 44_000), 200)


@pytest.mark.parametrize("num_processes", [3, 5, 32])
def test_a_batch_that_cannot_be_divided_is_refused(num_processes: int) -> None:
    with pytest.raises(ValueError, match="cannot be divided"):
        TrainingOptions().applied(COCO_FPN, num_processes)


def test_images_per_gpu_that_do_not_divide_the_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be divided"):
        TrainingOptions(images_per_gpu=3).applied(COCO_FPN, 1)


def test_a_given_length_keeps_the_places_of_the_drops() -> None:
    short = TrainingOptions(iterations=900).applied(COCO_FPN, 1)
    assert (short.iterations, short.milestones) == (900, (600, 800))
    assert short.warmup_iterations == 300


def test_smaller_images_have_smaller_anchors() -> None:
    small = TrainingOptions(image_px=200).applied(COCO_FPN, 1)
    assert (small.train_short_px[0], small.test_short_px, small.long_px) == (160, 200, 333)
    assert small.anchor_sizes_px == (8, 16, 32, 64, 128)
