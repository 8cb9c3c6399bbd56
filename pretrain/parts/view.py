"""What a method asks of the views of an image; how they look is the recipe's business."""

from dataclasses import dataclass
from typing import Literal

Augmentation = Literal["crop", "color", "blur", "solarize", "flip", "rotation", "texture"]
"""color is jitter and grayscale together, as in Xiao et al., ICLR 2021, arXiv:2008.05659."""


@dataclass(frozen=True, kw_only=True)
class View:
    """One view of an image; every augmentation is drawn anew unless said otherwise."""

    small: bool = False
    """Of the recipe's small size, as in multi-crop: Caron et al., arXiv:2006.09882."""
    copies: tuple[Augmentation, ...] = ()
    """Augmentations that are the first view's, with the coin that decides whether they happen."""
    differs: tuple[Augmentation, ...] = ()
    """Augmentations that are drawn again until they differ from the first view's."""
    without: tuple[Augmentation, ...] = ()
    """Augmentations that this view never gets."""
