"""Input and output of a detector, the same for both engines."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Polygons = tuple[NDArray[np.float64], ...]
"""Closed outlines of one object, each x, y, x, y, ... in px."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
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

    def to(self, device: torch.device) -> "Sample":
        """Return the sample on a device; copies from pinned memory are asynchronous."""
        return self._with_each(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> "Sample":
        """Return the sample in pinned memory, from which a GPU copies asynchronously."""
        return self._with_each(Tensor.pin_memory)

    def _with_each(self, change: Callable[[Tensor], Tensor]) -> "Sample":
        return replace(
            self,
            image=change(self.image),
            boxes=change(self.boxes),
            classes=change(self.classes),
            keypoints=None if self.keypoints is None else change(self.keypoints),
        )


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


class Detector(Protocol):
    """A detector of either engine."""

    network: nn.Module
    """The network to train. In training mode it maps a sequence of samples to the losses to be
    summed, under detectron2's names: loss_rpn_cls, loss_rpn_loc, loss_cls, loss_box_reg, and
    loss_mask or loss_keypoint."""

    def find(self, images: Sequence[Tensor]) -> list[ResizedDetections]:
        """Return the k detections, boxes (k, 4), on each image (3, H, W) uint8, in eval mode."""

    def feature_maps(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return the maps (n, C, H, W) after layer1 to layer4, by these names, in eval mode.

        The n images (3, H, W) uint8 have one size and pass the detector's own preprocessing. Of
        c4, layer4 sees the whole map and no extra norm follows it.
        """

    def load_backbone(self, state_dict: Mapping[str, Tensor]) -> int:
        """Load a backbone of torchvision's names and shapes; return how many tensors it has.

        ValueError unless every tensor has a place and every place of a backbone a tensor.
        """

    def is_rpn(self, parameter: str) -> bool:
        """Return whether a parameter of the network belongs to the RPN or the norm before it."""
