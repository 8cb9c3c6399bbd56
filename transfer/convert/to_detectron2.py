"""A backbone under detectron2's names, each given by an explicit rule and none by similarity.

detectron2 0.6 calls torchvision's layer1 res2 and stores a norm inside its convolution. Its
bottlenecks stride in the 3x3 convolution only if STRIDE_IN_1X1 is False. Shapes do not show that:
`transfer.detection.proof` compares features.
"""

import re
from collections.abc import Mapping
from typing import Literal

from torch import Tensor, nn

from transfer.convert.architectures import is_optional

IN_A_BLOCK = {
    "conv1": "conv1",
    "conv2": "conv2",
    "conv3": "conv3",
    "bn1": "conv1.norm",
    "bn2": "conv2.norm",
    "bn3": "conv3.norm",
    "downsample.0": "shortcut",
    "downsample.1": "shortcut.norm",
}
IN_THE_STEM = {"conv1": "stem.conv1", "bn1": "stem.conv1.norm"}


def detectron2_name(name: str, neck: Literal["fpn", "c4"]) -> str:
    """Return the name of a tensor of torchvision's ResNet in detectron2's detector.

    layer4 of a c4 detector is part of the box head. ValueError if no rule names the tensor.
    """
    part, _, kind = name.rpartition(".")
    prefix = "backbone.bottom_up." if neck == "fpn" else "backbone."
    if part in IN_THE_STEM:
        return f"{prefix}{IN_THE_STEM[part]}.{kind}"
    place = re.fullmatch(r"layer([1-4])\.(\d+)\.(.+)", part)
    if place is None or place[3] not in IN_A_BLOCK:
        raise ValueError(
            f"tensor {name!r} has no place in detectron2's ResNet; expected torchvision's names, "
            f"such as layer1.0.bn1.weight, without prefix and classifier"
        )
    stage = int(place[1]) + 1
    if neck == "c4" and stage == 5:
        prefix = "roi_heads."
    return f"{prefix}res{stage}.{place[2]}.{IN_A_BLOCK[place[3]]}.{kind}"


def to_detectron2(
    state_dict: Mapping[str, Tensor], neck: Literal["fpn", "c4"]
) -> dict[str, Tensor]:
    """Return the same tensors, in their shapes and order, under detectron2's names."""
    return {detectron2_name(name, neck): tensor for name, tensor in state_dict.items()}


def load_into_mmseg(backbone: nn.Module, state_dict: Mapping[str, Tensor]) -> int:
    """Load torchvision's tensors into the backbone; return their number.

    ValueError unless names and shapes agree; only step counters may be missing.
    """
    places = dict(backbone.state_dict())
    lost = [
        name
        for name, tensor in state_dict.items()
        if name not in places or places[name].shape != tensor.shape
    ]
    empty = [name for name in places if name not in state_dict and not is_optional(name)]
    if lost or empty:
        raise ValueError(
            f"of {len(state_dict)} tensors of the backbone {len(lost)} have no place in "
            f"mmsegmentation's, first {lost[:3]}, and {len(empty)} of {len(places)} places have no "
            f"tensor, first {empty[:3]}; expected its plain ResNet of the same depth (a ResNetV1c "
            f"has another stem)"
        )
    backbone.load_state_dict({**places, **state_dict})
    return len(state_dict)
