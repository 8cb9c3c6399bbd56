"""`Detector`, the base class of both engines, with its inputs and outputs.

Before training, `verify` checks that the backbone computes the same as the checkpoint.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from transfer.detection.recipe import DetectorRecipe
from transfer.finetuning import stream
from transfer.finetuning.loop import fused
from transfer.finetuning.verify import verify_maps

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
        """Load a backbone with torchvision's names; `verify` detects tensors that were not loaded.

        Raises RuntimeError for unexpected tensors.
        """

    def optimizer(self, recipe: DetectorRecipe) -> torch.optim.SGD:
        """Return SGD with weight decay for all parameters except norm layers, as in detectron2.

        If `rpn_gradient` is lr_mult, the RPN has a smaller learning rate: "rate_factor" of a
        parameter group is the factor that `finetuning.schedule.set_learning_rate` applies.
        """
        groups: dict[tuple[float, float], list[nn.Parameter]] = defaultdict(list)
        for module_name, module in self.named_modules():
            decay = 0.0 if isinstance(module, _BatchNorm) else recipe.weight_decay
            is_rpn = f"{module_name}.".startswith(self.rpn_prefix)
            is_slower = is_rpn and recipe.rpn_gradient == "lr_mult"
            for parameter in module.parameters(recurse=False):
                groups[decay, recipe.rpn_gradient_factor if is_slower else 1.0].append(parameter)
        return torch.optim.SGD(
            [
                {"params": parameters, "weight_decay": decay, "rate_factor": factor}
                for (decay, factor), parameters in groups.items()
            ],
            lr=recipe.learning_rate,
            momentum=recipe.sgd_momentum,
            fused=fused(self, recipe.precision),
        )

    def verify(self, state_dict: Mapping[str, Tensor], arch: str) -> dict[str, float]:
        """Compare each stage's maps with the backbone; return the largest differences.

        Raises ValueError like `verify_maps`.
        """
        return verify_maps(
            self,
            lambda images: self.feature_maps(list(images)),
            state_dict,
            arch,
            mean=self.recipe.pixel_mean,
            std=self.recipe.pixel_std,
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
