"""The classes of ImageNet-1k and ImageNet-100, and those of the small one with their images."""

from pathlib import Path

import numpy as np

from transfer.datasets.synthetic.patterns import Pixels, draw_size_px, kinds_of_classes, paint

IMAGENET100 = Path(__file__).with_name("imagenet100.txt")
"""The classes of CMC (Tian et al. 2020), used by JCL, LORAC, UniCLR and LooC."""
IMAGENET1K = Path(__file__).with_name("imagenet1k.txt")
"""The classes of ILSVRC 2012, as timm lists them (imagenet_synsets.txt)."""
# fmt: off
SMALL_WNIDS = (
    "n01440764", "n01749939", "n02107142", "n02488291", "n02869837", "n02877765", "n03085013",
    "n03594734", "n04517823", "n15075141",
)
# fmt: on
"""Classes of the small ImageNet: all but the first and the last are in ImageNet-100, and four
(bottle cap, keyboard, jeans, vacuum cleaner) are in ObjectNet."""
SMALL_FIRST_KIND = 12


def imagenet1k_wnids() -> list[str]:
    """Return the 1,000 class folders of ImageNet-1k."""
    return IMAGENET1K.read_text().split()


def imagenet100_wnids() -> list[str]:
    """Return the 100 class folders of ImageNet-100, in the published order."""
    return IMAGENET100.read_text().split()


def small_in100_wnids() -> list[str]:
    """Return the classes of the small ImageNet that are in ImageNet-100."""
    listed = set(imagenet100_wnids())
    return [wnid for wnid in SMALL_WNIDS if wnid in listed]


def paint_small_class(wnid: str, rng: np.random.Generator) -> Pixels:
    """Return a new image of a class of the small ImageNet."""
    kinds = kinds_of_classes(len(SMALL_WNIDS), SMALL_FIRST_KIND)
    return paint(kinds[SMALL_WNIDS.index(wnid)], draw_size_px(rng), rng)
