"""Options and schedules become a recipe, with necessary deviations."""

from dataclasses import replace

import pytest

from pretrain.running.errors import NotFiniteError
from transfer.detection.recipe import COCO_FPN, VOC_C4
from transfer.finetuning.options import TrainingOptions, length_fraction, with_batch
from transfer.finetuning.schedule import search_learning_rates
from transfer.frozen.probe_training import ProbeTraining, settings_of
from transfer.segmentation.recipe import VOC_FCN
from transfer.tasks import TASKS
from transfer.tasks.detection import Detection
from transfer.tasks.few_shot import FewShot
from transfer.tasks.linear_transfer import LinearTransfer
from transfer.tasks.segmentation import Segmentation
from transfer.tasks.semi_supervised import SemiSupervised


def test_fewer_images_per_gpu_accumulate_the_same_batch() -> None:
    item, eight = (TrainingOptions(gpus=gpus, images_per_gpu=2) for gpus in (1, 8))
    # as many images as before behind the precise statistics
    expected = replace(COCO_FPN, accumulated=8, precise_norm_batches=1600)
    assert item.applied(COCO_FPN) == expected
    assert eight.applied(COCO_FPN) == TrainingOptions(gpus=8).applied(COCO_FPN) == COCO_FPN


def test_another_batch_length_or_image_size_scales_what_depends_on_it() -> None:
    scaled = TrainingOptions(batch_size=8).applied(VOC_C4)
    assert (scaled.learning_rate, scaled.iterations) == (0.01, 48_000)
    assert (scaled.milestones, scaled.warmup_iterations) == ((36_000, 44_000), 200)
    short = TrainingOptions(iterations=900).applied(COCO_FPN)
    assert (short.iterations, short.milestones) == (900, (600, 800))
    assert short.warmup_iterations == 300  # ends before the first drop
    small = TrainingOptions(image_px=200).applied(COCO_FPN)
    assert (small.train_short_px[0], small.test_short_px, small.long_px) == (160, 200, 333)
    assert small.anchor_sizes_px == (8, 16, 32, 64, 128)


def test_without_a_wish_the_most_gpus_that_divide_the_batch_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for gpus, expected in [(0, 1), (1, 1), (6, 4), (8, 8), (12, 8)]:
        monkeypatch.setattr("torch.cuda.device_count", lambda gpus=gpus: gpus)
        assert TrainingOptions().num_processes(16) == expected
        assert TrainingOptions().applied(COCO_FPN) == COCO_FPN


def test_batch_must_be_divisible_by_processes() -> None:
    three, many = TrainingOptions(gpus=3), TrainingOptions(gpus=32)
    for options in (three, many, TrainingOptions(images_per_gpu=3)):
        with pytest.raises(ValueError, match="divided"):
            options.applied(COCO_FPN)


def diverging_from_one(rate: float) -> float:
    """A score, as a training on held-out images would give it."""
    if rate >= 1:
        raise NotFiniteError("a loss is not finite")
    return 10 * rate


def test_diverged_learning_rates_are_skipped() -> None:
    assert search_learning_rates((0.1, 0.5, 1.0), diverging_from_one, "AP") == {0.1: 1.0, 0.5: 5.0}
    assert search_learning_rates((), diverging_from_one, "AP") == {}
    with pytest.raises(NotFiniteError, match=r"\(1.0, 2.0\)"):
        search_learning_rates((1.0, 2.0), diverging_from_one, "AP")


def test_a_schedule_is_a_name_or_a_share() -> None:
    lengths = {"paper": 1, "short": 0.1, "smoke": 0, "0.02": 0.02}
    assert {schedule: length_fraction(schedule) for schedule in lengths} == lengths
    for schedule in ["long", "0", "1", "-0.1", "nan", ""]:
        with pytest.raises(ValueError, match=f"'{schedule}'"):
            length_fraction(schedule)


def test_the_smallest_share_of_every_training_has_at_least_one_step() -> None:
    for key, whole in TASKS.items():
        task = whole.at_schedule("0.000001")
        if isinstance(task, LinearTransfer):
            assert settings_of(ProbeTraining, task).num_steps(1000) >= 1, key
        elif isinstance(task, SemiSupervised):
            assert task.fine_tuning(1000, 1.0).iterations >= 1, key
        elif isinstance(task, Detection | Segmentation):
            assert task.recipe.iterations >= 1, key
        elif isinstance(task, FewShot):
            assert task.iterations >= 1, key


def test_a_batch_larger_than_all_images_of_a_training_leaves_one_step() -> None:
    recipe = with_batch(VOC_FCN, 2**24)
    assert (recipe.iterations, set(recipe.milestones)) == (1, {1})


def test_statistics_of_norms_use_as_many_images_with_another_batch() -> None:
    for batch_size in (2, 16, 48):
        recipe = with_batch(COCO_FPN, batch_size)
        images = COCO_FPN.precise_norm_batches * COCO_FPN.batch_size
        assert 0 <= recipe.precise_norm_batches * batch_size - images < batch_size
    assert with_batch(VOC_FCN, 4).precise_norm_batches == VOC_FCN.precise_norm_batches == 0
