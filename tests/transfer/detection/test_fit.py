"""Settings that do not fit together are refused, and the message says which would."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from transfer.detection import recipe as recipes
from transfer.detection.fit import check_buildable, check_names_and_shapes
from transfer.detection.recipe import COCO_FPN, VOC_C4, DetectorRecipe

PLACES = {
    "conv1.weight": torch.zeros(4, 3, 7, 7),
    "bn1.weight": torch.zeros(4),
    "bn1.num_batches_tracked": torch.tensor(0),
}


def test_impossible_detectors_are_refused(subtests: pytest.Subtests) -> None:
    for recipe, arch, message in [
        (COCO_FPN, "vgg16", "known are resnet18"),
        (replace(VOC_C4, finds="masks"), "resnet50", "take neck fpn"),
        (replace(COCO_FPN, extra_norms="moco"), "resnet50", "belong to a c4 detector"),
        (replace(COCO_FPN, anchor_sizes_px=(32, 64)), "resnet50", "one per level"),
    ]:
        with (
            subtests.test(recipe=recipe, arch=arch, message=message),
            pytest.raises(ValueError, match=message),
        ):
            check_buildable(recipe, arch)


@pytest.mark.parametrize("arch", ["resnet18", "resnet50"])
def test_every_published_recipe_can_be_built(arch: str) -> None:
    published = [value for value in vars(recipes).values() if isinstance(value, DetectorRecipe)]
    assert len(published) == 8
    for recipe in published:
        check_buildable(recipe, arch)
        check_buildable(recipe.tiny(), arch)


def test_a_counter_may_be_missing() -> None:
    tensors = {name: tensor for name, tensor in PLACES.items() if "num" not in name}
    check_names_and_shapes(tensors, PLACES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fc.bias": torch.zeros(4)}, r"1 have no place in the detector, first \['fc.bias'\]"),
        ({"bn1.weight": torch.zeros(5)}, r"1 have no place in the detector, first \['bn1"),
    ],
)
def test_a_tensor_without_a_place_of_its_shape_is_refused(
    changes: dict[str, Tensor], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_names_and_shapes(PLACES | changes, PLACES)


def test_a_place_without_a_tensor_is_refused() -> None:
    tensors = {name: tensor for name, tensor in PLACES.items() if name != "conv1.weight"}
    with pytest.raises(ValueError, match=r"1 of 3 places have no tensor, first \['conv1"):
        check_names_and_shapes(tensors, PLACES)
