"""The norm layers that a C4 detector has beyond those of its backbone.

MoCo (He et al., CVPR 2020, arXiv:1911.05722) normalizes the output of layer4 in the box head. CO2
(Wei et al., ICLR 2021, arXiv:2010.02217) also normalizes the map before the RPN.
"""

from collections.abc import Callable

from torch import nn

from transfer.detection.recipe import DetectorRecipe

NormLayer = Callable[[int], nn.Module]


def norm_after_layer4(recipe: DetectorRecipe, norm: NormLayer, channels: int) -> nn.Module:
    """Return the norm of layer4's output, for the recipes of MoCo and CO2; else the identity."""
    return norm(channels) if recipe.extra_norms in ("moco", "co2") else nn.Identity()


def norm_before_rpn(recipe: DetectorRecipe, norm: NormLayer, channels: int) -> nn.Module:
    """Return the norm of the RPN's input, for CO2's recipe; else the identity."""
    return norm(channels) if recipe.extra_norms == "co2" else nn.Identity()
