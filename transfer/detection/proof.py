"""Check before training that a detector's backbone computes what its source does, and trains.

The reference is torchvision's network with the backbone's own tensors.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from transfer.convert.architectures import FEATURE_DIM, is_optional
from transfer.convert.proof import (
    check_trained,
    fixed_pixels,
    relative_differences,
    torchvision_maps,
)
from transfer.convert.resnet import network_with
from transfer.detection.recipe import PYRAMID_STRIDES_PX, DetectorRecipe
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
    images = fixed_pixels().to(device)
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


def check_buildable(recipe: DetectorRecipe, arch: str) -> None:
    """Raise ValueError for a detector that neither engine can build."""
    if arch not in FEATURE_DIM:
        raise ValueError(f"a detector on {arch} was asked for; known are {', '.join(FEATURE_DIM)}")
    if recipe.neck == "c4" and recipe.finds != "boxes":
        raise ValueError(f"a c4 detector finds boxes only, not {recipe.finds}: take neck fpn")
    if recipe.neck == "fpn" and recipe.extra_norms != "none":
        raise ValueError(
            f"the {recipe.extra_norms} norms belong to a c4 detector; a pyramid has them by "
            f"`normed`, and extra_norms none"
        )
    levels = len(PYRAMID_STRIDES_PX)
    if recipe.neck == "fpn" and len(recipe.anchor_sizes_px) != levels:
        raise ValueError(
            f"{len(recipe.anchor_sizes_px)} anchor sizes for the {levels} levels of a pyramid: "
            f"give one per level"
        )


def check_names_and_shapes(tensors: Mapping[str, Tensor], places: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless tensors and places match one to one, in name and shape.

    tensors: the backbone's, under the engine's names; places: the detector's tensors for them.
    Places of optional tensors may stay open.
    """
    lost = [
        name
        for name, tensor in tensors.items()
        if name not in places or places[name].shape != tensor.shape
    ]
    open_places = [name for name in places if name not in tensors and not is_optional(name)]
    if lost or open_places:
        raise ValueError(
            f"of {len(tensors)} tensors of the backbone {len(lost)} have no place in the "
            f"detector, first {lost[:3]}, and {len(open_places)} of {len(places)} places have "
            f"no tensor, first {open_places[:3]}; expected the network the detector was built on"
        )
