"""Classes of pixels beside the truth."""

from collections.abc import Callable

import numpy as np
from PIL import Image

from transfer.datasets.segmented import IGNORED, Mask, Segmented, voc_palette
from transfer.galleries.tile import Tile, chosen_images, jpeg, side_by_side, thumbnail

OPACITY = 0.6
GOOD = 0.9
"""Share of right pixels from which an image counts as well segmented."""


def segments(split: Segmented, predicted: Callable[[int], Mask]) -> list[Tile]:
    """Return truth and prediction of a fixed handful of images, the best first.

    predicted: function of an image's place that returns the class of each pixel (H, W).
    """
    names = [split.name(i) for i in range(len(split))]
    tiles = []
    for i in chosen_images(names):
        truth, found = split.mask(i), predicted(i)
        counted = truth != IGNORED
        right = float((truth == found)[counted].mean()) if counted.any() else 0.0
        image = thumbnail(split.source.decode(i))
        pair = side_by_side(_overlay(image, truth), _overlay(image, found))
        words = f"{100 * right:.0f} % of the pixels right; truth {_words(split, truth)}; "
        tile = Tile(
            jpeg=jpeg(pair),
            group="mostly right" if right >= GOOD else "partly wrong",
            caption=f"{words}predicted {_words(split, found)}",
            name=names[i],
        )
        tiles.append((right, tile))
    return [tile for _, tile in sorted(tiles, key=lambda pair: -pair[0])]


def _words(split: Segmented, mask: Mask) -> str:
    """Return the names of the classes in a mask but the background."""
    present = [int(c) for c in np.unique(mask) if c not in (0, IGNORED)]
    return ", ".join(split.class_names[c] for c in present) or "nothing"


def _overlay(image: Image.Image, mask: Mask) -> Image.Image:
    """Return the image with the classes in their colors; background stays as it is."""
    # class numbers have no order, so a mean of two would be an unrelated class
    small = Image.fromarray(mask).resize(image.size, Image.Resampling.NEAREST)
    classes = np.asarray(small)
    colors = np.frombuffer(voc_palette(), dtype=np.uint8).reshape(-1, 3)[classes]
    shown = (classes != 0)[..., None] * OPACITY
    blended = np.asarray(image) * (1 - shown) + colors * shown
    return Image.fromarray(blended.astype(np.uint8))
