"""Settings that do not fit together are refused, and so are tensors without a place."""

from dataclasses import replace

import pytest
import torch

from transfer.detection import recipe as recipes
from transfer.detection.proof import check_buildable, check_names_and_shapes
from transfer.detection.recipe import COCO_FPN, VOC_C4, DetectorRecipe


def test_impossible_detectors_are_refused_and_published_ones_are_not() -> None:
    for recipe, arch, message in [
        (COCO_FPN, "vgg16", "vgg16"),
        (replace(VOC_C4, finds="masks"), "resnet50", "neck fpn"),
        (replace(COCO_FPN, extra_norms="moco"), "resnet50", "c4"),
        (replace(COCO_FPN, anchor_sizes_px=(32, 64)), "resnet50", "2 anchor sizes"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_buildable(recipe, arch)
    published = [value for value in vars(recipes).values() if isinstance(value, DetectorRecipe)]
    assert len(published) == 8
    for recipe in published:
        check_buildable(recipe, "resnet50")
        check_buildable(recipe.tiny(), "resnet18")


def test_tensors_and_places_match_one_to_one_but_for_counters() -> None:
    places = {
        "conv1.weight": torch.zeros(4, 3, 7, 7),
        "bn1.weight": torch.zeros(4),
        "bn1.num_batches_tracked": torch.tensor(0),
    }
    counter = "bn1.num_batches_tracked"
    check_names_and_shapes({k: v for k, v in places.items() if k != counter}, places)
    for tensors, message in [
        (places | {"fc.bias": torch.zeros(4)}, r"1 have no place .*'fc.bias'"),
        (places | {"bn1.weight": torch.zeros(5)}, r"1 have no place .*'bn1"),
        ({k: v for k, v in places.items() if k != "conv1.weight"}, r"1 of 3 places .*'conv1"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_names_and_shapes(tensors, places)
