"""The views of an image that a method wants, and variants of parts; they need no torch.

The views' appearance is the recipe's.
"""

from dataclasses import dataclass
from typing import Literal

Stem = Literal["imagenet", "cifar"]
Projector = Literal["mlp", "linear"]
KeyForward = Literal["concatenated", "per_view"]
"""Images that share batch statistics: all M views of a batch, or those of one view."""
Augmentation = Literal["crop", "color", "blur", "solarize", "flip", "rotation", "texture"]
"""Augmentation by name; color is jitter and grayscale together, as in LooC, arXiv:2008.05659."""


@dataclass(frozen=True, kw_only=True)
class View:
    """One view of an image; its augmentations are drawn independently unless a field says more."""

    small: bool = False
    """The recipe's small size, as in multi-crop: Caron et al., arXiv:2006.09882."""
    copies: tuple[Augmentation, ...] = ()
    """Augmentations shared with the first view: whether they happen, and how."""
    without: tuple[Augmentation, ...] = ()
    """Augmentations that this view never gets."""
