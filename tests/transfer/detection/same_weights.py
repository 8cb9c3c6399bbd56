"""A detectron2 detector's tensors under the torchvision engine's names, by explicit rules."""

import re
from collections.abc import Mapping

from torch import Tensor

from transfer.detection.recipe import DetectorRecipe

BLOCK_PARTS = {
    **{f"conv{number}": f"conv{number}" for number in (1, 2, 3)},
    **{f"conv{number}.norm": f"bn{number}" for number in (1, 2, 3)},
    "shortcut": "downsample.0",
    "shortcut.norm": "downsample.1",
}
STEM_PARTS = {"stem.conv1": "conv1", "stem.conv1.norm": "bn1"}
SIMPLE = {
    "proposal_generator.norm": "rpn.input_norm",
    "roi_heads.res5.norm": "box_head.norm",
    "roi_heads.box_predictor.cls_score": "box_predictor.classes",
    "roi_heads.box_predictor.bbox_pred": "box_predictor.deltas",
    "roi_heads.mask_head.deconv": "mask_head.1.conv5_mask",
    "roi_heads.mask_head.predictor": "mask_head.1.mask_fcn_logits",
    "roi_heads.keypoint_head.score_lowres": "keypoint_head.1.kps_score_lowres",
}
RPN_PARTS = {
    "conv": "convolution.0",
    "conv.norm": "convolution.1",
    "objectness_logits": "objectness",
    "anchor_deltas": "deltas",
}


def to_torchvision(state_dict: Mapping[str, Tensor], recipe: DetectorRecipe) -> dict[str, Tensor]:
    """The same tensors (or their gradients), renamed.

    Classes need no new order: background is the last in both engines.
    """
    renamed = {torchvision_name(name, recipe): tensor for name, tensor in state_dict.items()}
    assert len(renamed) == len(state_dict)
    return renamed


def torchvision_name(name: str, recipe: DetectorRecipe) -> str:
    """Return detectron2's name of a tensor, optionally with the prefix "rcnn."."""
    part, _, kind = name.removeprefix("rcnn.").rpartition(".")
    location = _place(part, recipe)
    assert location is not None, name
    return f"{location}.{kind}"


def _place(part: str, recipe: DetectorRecipe) -> str | None:
    if part in SIMPLE:
        return SIMPLE[part]
    if result := re.fullmatch(r"proposal_generator\.(?:rpn\.)?rpn_head\.(.+)", part):
        return f"rpn.{RPN_PARTS[result[1]]}" if result[1] in RPN_PARTS else None
    if result := re.fullmatch(r"backbone\.fpn_(lateral|output)([2-5])(\.norm)?", part):
        blocks = "inner_blocks" if result[1] == "lateral" else "layer_blocks"
        return f"pyramid.{blocks}.{int(result[2]) - 2}.{1 if result[3] else 0}"
    if result := re.fullmatch(r"roi_heads\.box_head\.conv(\d)(\.norm)?", part):
        return f"box_head.{int(result[1]) - 1}.{1 if result[2] else 0}"
    if result := re.fullmatch(r"roi_heads\.box_head\.fc(\d)", part):
        # convolutions, flattening, then each layer with its ReLU
        return f"box_head.{recipe.box_head_convs + 1 + 2 * (int(result[1]) - 1)}"
    if result := re.fullmatch(
        r"roi_heads\.(mask|keypoint)_head\.(?:mask_|conv_)fcn(\d)(\.norm)?", part
    ):
        return f"{result[1]}_head.0.{int(result[2]) - 1}.{1 if result[3] else 0}"
    return _backbone_place(part)


def _backbone_place(part: str) -> str | None:
    resnet = re.sub(r"^(backbone\.bottom_up|backbone|roi_heads(?=\.res5))\.", "", part)
    if resnet == part:
        return None
    if resnet in STEM_PARTS:
        return f"backbone.{STEM_PARTS[resnet]}"
    result = re.fullmatch(r"res([2-5])\.(\d+)\.(.+)", resnet)
    if result is None or result[3] not in BLOCK_PARTS:
        return None
    return f"backbone.layer{int(result[1]) - 1}.{result[2]}.{BLOCK_PARTS[result[3]]}"
