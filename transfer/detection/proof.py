"""Check before training that a detector's backbone computes what its source does, and trains.

The reference is torchvision's network with the backbone's own tensors.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from transfer.convert.compare_maps import (
    check_trained,
    fixed_images,
    relative_differences,
    torchvision_maps,
)
from transfer.convert.resnet import network_with
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.sample import Detector

NORMS = {"fpn": 8, "mask_head": 4, "keypoint_head": 8, "rpn_head": 1}
"""Number of norm layers of each part: one after every convolution before an activation or sum."""
EXTRA_NORMS = {"none": 0, "moco": 1, "co2": 2}


def prove(
    detector: Detector, state_dict: Mapping[str, Tensor], arch: str, recipe: DetectorRecipe
) -> dict[str, float]:
    """Return the largest difference of each stage, layer1 to layer4, on two fixed images.

    state_dict: the backbone that was loaded, torchvision's names and shapes. ValueError if a
    difference is above the tolerance, a norm layer is missing or does not train, or a parameter is
    frozen.
    """
    check_trained(detector.network, expected_norms(state_dict, recipe))
    device = next(detector.network.parameters()).device
    images = fixed_images().to(device)
    was_training = detector.network.training
    detector.network.eval()
    # reduced precision would hide small faults behind its own differences
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        maps = detector.feature_maps(list(images))
        tensors = {name: tensor.to(device) for name, tensor in state_dict.items()}
        network = network_with(arch, "imagenet", tensors)
        expected = torchvision_maps(network, images, recipe.pixel_mean, recipe.pixel_std)
    detector.network.train(was_training)
    advice = f"its images are not normalized by mean {recipe.pixel_mean} and std {recipe.pixel_std}"
    return relative_differences(maps, expected, advice)


def expected_norms(state_dict: Mapping[str, Tensor], recipe: DetectorRecipe) -> int:
    """Return the number of norm layers of the detector, those of its backbone included.

    state_dict: the backbone, torchvision's names and shapes.
    """
    of_backbone = sum(name.endswith("running_mean") for name in state_dict)
    exist = {"fpn", "box_head", recipe.finds.removesuffix("s") + "_head", "rpn_head"}
    layers = {**NORMS, "box_head": recipe.box_head_convs}
    added = sum(layers[part] for part in recipe.normed if part in exist)
    return of_backbone + added + EXTRA_NORMS[recipe.extra_norms]
