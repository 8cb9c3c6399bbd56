"""The views that a method requests, and names of variants; without torch.

The recipe defines how the views look.
"""

from dataclasses import dataclass
from typing import Literal

Arch = Literal["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]
Stem = Literal["imagenet", "cifar"]
Projector = Literal["mlp", "linear"]
KeyForward = Literal["concatenated", "per_view"]
"""Images that share batch statistics: all views, or one view."""
Augmentation = Literal["crop", "color", "blur", "solarize", "flip", "rotation", "texture"]
"""Name of an augmentation.
`color` is jitter and grayscale together, as in LooC, arXiv:2008.05659."""


@dataclass(frozen=True, kw_only=True)
class View:
    """One view of an image.

    Its augmentations are drawn independently, except those in `copies`.
    """

    small: bool = False
    """Use the recipe's small size, as in multi-crop: Caron et al., arXiv:2006.09882."""
    copies: tuple[Augmentation, ...] = ()
    """Augmentations with the same parameters as in the first view."""
    without: tuple[Augmentation, ...] = ()
    """Augmentations that this view never gets."""
