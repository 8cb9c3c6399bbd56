"""`Detector`, the base class of both engines, with its inputs and outputs.

Before training, `verify` checks that the backbone computes the same as the checkpoint and that all
of its parameters are trained.
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
"""Number of norm layers per module: one for every convolution.

A convolution counts if an activation or a sum follows it."""
EXTRA_NORMS = {"none": 0, "moco": 1, "co2": 2}

Polygons = tuple[NDArray[np.float64], ...]
"""Closed outlines of an object: x, y, x, y, ... in px."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample(stream.Sample):
    """A training image, resized and possibly flipped, with its m objects.

    Boxes are (left, top, right, bottom) in px of this image.
    """

    image: Tensor
    """(3, H, W) uint8, RGB."""
    boxes: Tensor
    """Boxes (m, 4) float32."""
    classes: Tensor
    """(m,) int64, from 0."""
    polygons: tuple[Polygons, ...] | None = None
    """Outlines of the m objects; None without masks."""
    keypoints: Tensor | None = None
    """(m, 17, 3) float32: x, y, visibility.

    0: not labeled, 1: hidden, 2: visible."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ResizedDetections:
    """The k detections in a resized image in px, best first."""

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
    """Base class of the detectors of both engines.

    In training mode, it maps a sequence of samples to the losses to sum up, with detectron2's
    names: loss_rpn_cls, loss_rpn_loc, loss_cls, loss_box_reg, and loss_mask or loss_keypoint.
    """

    recipe: DetectorRecipe
    rpn_prefix: ClassVar[str]
    """Prefix of parameter names of the RPN and its input norm."""

    @abstractmethod
    def find(self, images: Sequence[Tensor]) -> list[ResizedDetections]:
        """Return the detections on uint8 images (3, H, W), in eval mode."""

    @abstractmethod
    def feature_maps(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return the maps after layer1 to layer4 by name, in eval mode.

        Maps are (n, C, H, W). The n uint8 images (3, H, W) have equal sizes; the detector
        normalizes them. For c4, layer4 is applied to the full map, without the extra norm.
        """

    @abstractmethod
    def load_backbone(self, state_dict: Mapping[str, Tensor]) -> None:
        """Load a backbone with torchvision's names; RuntimeError for unexpected tensors.

        `verify` detects tensors that were not loaded.
        """

    def verify(self, state_dict: Mapping[str, Tensor], arch: str) -> dict[str, float]:
        """Compare each stage's maps with the backbone; return the largest differences.

        Raises ValueError like `verify_maps`.
        """
        recipe = self.recipe
        num_norms = {**NORMS, "box_head": recipe.box_head_convs}
        modules = {"fpn", "box_head", recipe.finds.removesuffix("s") + "_head", "rpn_head"}
        num_added = sum(num_norms[module] for module in recipe.normed if module in modules)
        return verify_maps(
            self,
            lambda images: self.feature_maps(list(images)),
            state_dict,
            arch,
            mean=recipe.pixel_mean,
            std=recipe.pixel_std,
            num_new_norms=num_added + EXTRA_NORMS[recipe.extra_norms],
        )


def scale_gradient(input: Tensor, factor: float) -> Tensor:
    """Return the input unchanged, but multiply its gradient by a factor.

    CO2 divides the gradient from the RPN into the shared map by 10: Wei et al., ICLR 2021,
    arXiv:2010.02217.
    """
    scaled = input.view_as(input)
    if scaled.requires_grad:
        scaled.register_hook(lambda gradient: gradient * factor)
    return scaled
