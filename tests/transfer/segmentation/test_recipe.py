"""Numbers of the two papers, and what a shorter run makes of them."""

import pytest

from transfer.finetuning.options import TrainingOptions, of_length
from transfer.finetuning.schedule import learning_rate
from transfer.segmentation.recipe import VOC_FCN, VOC_FCN_MOCO, SegmentationRecipe


def test_co2_trains_fifty_epochs_and_moco_30k_iterations() -> None:
    assert VOC_FCN.iterations == round(50 * 10_582 / VOC_FCN.batch_size)
    assert VOC_FCN_MOCO.iterations == 30_000


@pytest.mark.parametrize("recipe", [VOC_FCN, VOC_FCN_MOCO])
def test_images_and_optimizer_are_those_of_both_papers(recipe: SegmentationRecipe) -> None:
    assert (recipe.batch_size, recipe.crop_px) == (16, 513)
    assert (recipe.scales, recipe.flip_share) == ((0.5, 2.0), 0.5)
    assert (recipe.learning_rate, recipe.sgd_momentum, recipe.weight_decay) == (0.003, 0.9, 1e-4)
    assert (recipe.warmup_iterations, recipe.accumulated, recipe.precision) == (0, 1, "float32")


def test_iterations_are_counted_by_hand() -> None:
    assert (VOC_FCN.iterations, VOC_FCN.milestones) == (33_069, (23_148, 29_762))
    assert (VOC_FCN_MOCO.iterations, VOC_FCN_MOCO.milestones) == (30_000, (21_000, 27_000))


@pytest.mark.parametrize("recipe", [VOC_FCN, VOC_FCN_MOCO, of_length(VOC_FCN, 0.1)])
def test_the_rate_drops_at_70_and_90_percent(recipe: object) -> None:
    assert isinstance(recipe, type(VOC_FCN))
    at = {share: learning_rate(recipe, round(share * recipe.iterations)) for share in (0.69, 0.71)}
    assert at == {0.69: 0.003, 0.71: pytest.approx(0.0003)}
    assert learning_rate(recipe, recipe.iterations - 1) == pytest.approx(0.00003)
    assert learning_rate(recipe, 0) == 0.003


def test_options_change_length_batch_and_crop() -> None:
    options = TrainingOptions(gpus=1, iterations=100, image_px=129, images_per_gpu=4)
    recipe = options.applied(VOC_FCN)
    assert (recipe.iterations, recipe.milestones) == (100, (70, 90))
    assert (recipe.crop_px, recipe.accumulated, recipe.batch_size) == (129, 4, 16)
    halved = TrainingOptions(gpus=1, batch_size=8).applied(VOC_FCN_MOCO)
    assert (halved.iterations, halved.learning_rate) == (60_000, 0.0015)
