"""Heads of boxes, masks and keypoints, which read the pooled maps.

Initial weights are distributed as in detectron2. torchvision's blocks agree for convolutions only,
so all other layers are drawn again here.
"""

from collections.abc import Callable

from torch import Tensor, nn
from torchvision.models.detection.faster_rcnn import FastRCNNConvFCHead
from torchvision.models.detection.keypoint_rcnn import KeypointRCNNPredictor
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor

from transfer.detection.recipe import DetectorRecipe, Part
from transfer.detection.torchvision_engine.keypoints import NUM_KEYPOINTS

NormLayer = Callable[[int], nn.Module]


class BoxPredictor(nn.Module):
    """Predictor of class and box deltas; background is the last class and has no deltas."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.classes = nn.Linear(num_features, num_classes + 1)
        self.deltas = nn.Linear(num_features, num_classes * 4)
        nn.init.normal_(self.classes.weight, std=0.01)
        nn.init.normal_(self.deltas.weight, std=0.001)
        nn.init.zeros_(self.classes.bias)
        nn.init.zeros_(self.deltas.bias)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (r, L + 1) and deltas (r, L, 4) of features (r, C)."""
        return self.classes(features), self.deltas(features).unflatten(1, (-1, 4))


class C4Features(nn.Module):
    """Mean over the layer4 map of each region, after the extra norm if there is one."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, maps: Tensor) -> Tensor:
        """Return features (r, C) of maps (r, C, H, W)."""
        mean: Tensor = self.norm(maps).mean(dim=(2, 3))
        return mean


def box_head(recipe: DetectorRecipe, norm: NormLayer) -> tuple[nn.Module, int]:
    """Return the box head of a pyramid and its number of output features.

    Its input are pooled maps (r, C, box_pool, box_pool).
    """
    head = FastRCNNConvFCHead(
        (recipe.fpn_channels, recipe.box_pool, recipe.box_pool),
        [recipe.box_head_conv_channels] * recipe.box_head_convs,
        [recipe.box_head_fc_channels] * recipe.box_head_fcs,
        norm_layer=_norm_of("box_head", recipe, norm),
    )
    for layer in head:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_uniform_(layer.weight, a=1)
            nn.init.zeros_(layer.bias)
    if recipe.box_head_fcs:
        return head, recipe.box_head_fc_channels
    channels = recipe.box_head_conv_channels if recipe.box_head_convs else recipe.fpn_channels
    return head, channels * recipe.box_pool**2


def mask_head(recipe: DetectorRecipe, num_classes: int, norm: NormLayer) -> nn.Module:
    """Return the mask head, from pooled maps (r, C, 14, 14) to logits (r, L, 28, 28)."""
    channels = recipe.mask_head_channels
    convolutions = MaskRCNNHeads(
        recipe.fpn_channels, [channels] * 4, 1, norm_layer=_norm_of("mask_head", recipe, norm)
    )
    predictor = MaskRCNNPredictor(channels, channels, num_classes)
    nn.init.normal_(predictor.mask_fcn_logits.weight, std=0.001)
    nn.init.zeros_(predictor.mask_fcn_logits.bias)
    nn.init.zeros_(predictor.conv5_mask.bias)
    return nn.Sequential(convolutions, predictor)


def keypoint_head(recipe: DetectorRecipe, norm: NormLayer) -> nn.Module:
    """Return the keypoint head, from pooled maps (r, C, 14, 14) to logits (r, 17, 56, 56)."""
    channels = recipe.keypoint_head_channels
    # torchvision's block for masks, since its block for keypoints takes no norm
    convolutions = MaskRCNNHeads(
        recipe.fpn_channels, [channels] * 8, 1, norm_layer=_norm_of("keypoint_head", recipe, norm)
    )
    return nn.Sequential(convolutions, KeypointRCNNPredictor(channels, NUM_KEYPOINTS))


def _norm_of(part: Part, recipe: DetectorRecipe, norm: NormLayer) -> NormLayer | None:
    return norm if part in recipe.normed else None


def norm_after_layer4(recipe: DetectorRecipe, norm: NormLayer, channels: int) -> nn.Module:
    """Return the norm of layer4's output in a C4 box head, for MoCo's and CO2's recipes.

    Else the identity. He et al., CVPR 2020, arXiv:1911.05722.
    """
    return norm(channels) if recipe.extra_norms in ("moco", "co2") else nn.Identity()


def norm_before_rpn(recipe: DetectorRecipe, norm: NormLayer, channels: int) -> nn.Module:
    """Return the norm of the RPN's input, for CO2's recipe; else the identity.

    Wei et al., ICLR 2021, arXiv:2010.02217.
    """
    return norm(channels) if recipe.extra_norms == "co2" else nn.Identity()
