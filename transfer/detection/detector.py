"""The common part of both engines: input and output of a detector, what can be built, the proof.

The proof before training: the backbone computes what its source does, and all of it trains.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from transfer.detection.recipe import DetectorRecipe
from transfer.finetuning import stream
from transfer.finetuning.verify import verify_maps

NORMS = {"fpn": 8, "mask_head": 4, "keypoint_head": 8, "rpn_head": 1}
"""Number of norm layers of each part: one after every convolution before an activation or sum."""
EXTRA_NORMS = {"none": 0, "moco": 1, "co2": 2}

Polygons = tuple[NDArray[np.float64], ...]
"""Closed outlines of one object, each x, y, x, y, ... in px."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample(stream.Sample):
    """A training image, resized and maybe flipped, and its m objects.

    Boxes are (left, top, right, bottom) in px of this image.
    """

    image: Tensor
    """(3, H, W) uint8, RGB."""
    boxes: Tensor
    """Boxes (m, 4) float32."""
    classes: Tensor
    """(m,) int64, from 0."""
    polygons: tuple[Polygons, ...] | None = None
    """Outlines of the m objects; None where no masks are learned."""
    keypoints: Tensor | None = None
    """(m, 17, 3) float32: x, y, and 0 not labeled, 1 hidden, 2 visible."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ResizedDetections:
    """k detections in one image, best first, in px of the resized image."""

    boxes: Tensor
    """Boxes (k, 4) float32."""
    scores: Tensor
    """Confidences (k,), from 0 to 1."""
    classes: Tensor
    """(k,) int64, from 0."""
    masks: Tensor | None = None
    """(k, 28, 28) probabilities within the box."""
    keypoints: Tensor | None = None
    """(k, 17, 3): x, y, score."""


class Detector(nn.Module, ABC):
    """A detector of either engine.

    In training mode it maps a sequence of samples to the losses to be summed, under detectron2's
    names: loss_rpn_cls, loss_rpn_loc, loss_cls, loss_box_reg, and loss_mask or loss_keypoint.
    """

    recipe: DetectorRecipe
    rpn_prefix: ClassVar[str]
    """Start of the names of the parameters of the RPN, and of the norm before it."""

    @abstractmethod
    def find(self, images: Sequence[Tensor]) -> list[ResizedDetections]:
        """Return the k detections, boxes (k, 4), on each image (3, H, W) uint8, in eval mode."""

    @abstractmethod
    def feature_maps(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return the maps (n, C, H, W) after layer1 to layer4, by these names, in eval mode.

        The n images (3, H, W) uint8 have one size and pass the detector's own preprocessing. Of
        c4, layer4 sees the whole map and no extra norm follows it.
        """

    @abstractmethod
    def load_backbone(self, state_dict: Mapping[str, Tensor]) -> None:
        """Load a backbone of torchvision's names and shapes; RuntimeError if one has no place.

        `verify` detects layers that were not loaded.
        """

    def verify(self, state_dict: Mapping[str, Tensor], arch: str) -> dict[str, float]:
        """Return the largest difference of each stage's map from that of the loaded backbone.

        ValueError as of `verify_maps`.
        """
        recipe = self.recipe
        layers = {**NORMS, "box_head": recipe.box_head_convs}
        exist = {"fpn", "box_head", recipe.finds.removesuffix("s") + "_head", "rpn_head"}
        added = sum(layers[part] for part in recipe.normed if part in exist)
        return verify_maps(
            self,
            lambda images: self.feature_maps(list(images)),
            state_dict,
            arch,
            mean=recipe.pixel_mean,
            std=recipe.pixel_std,
            num_new_norms=added + EXTRA_NORMS[recipe.extra_norms],
        )


def scale_gradient(input: Tensor, factor: float) -> Tensor:
    """Return the input, of any shape, unchanged; its gradient is multiplied by the factor.

    CO2 divides what the RPN sends into the shared map by 10: Wei et al., ICLR 2021,
    arXiv:2010.02217.
    """
    scaled = input.view_as(input)
    if scaled.requires_grad:
        scaled.register_hook(lambda gradient: gradient * factor)
    return scaled
