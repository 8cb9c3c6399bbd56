"""A backbone in mmsegmentation's ResNet, whose tensors have torchvision's names.

Names and shapes do not show dilations, strides and norms: `transfer.segmentation.proof` compares
features.
"""

from collections.abc import Mapping

from torch import Tensor, nn

from transfer.convert.architectures import is_optional


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
