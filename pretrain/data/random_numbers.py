"""The random numbers of views, which decide every crop and color.

They are functions of the run's seed, the epoch and the image, so that neither workers nor an
interruption change a run. views.py turns them into crops and colors. The crops of probes on
frozen networks have their own: transfer/frozen/crops.py.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pretrain.parts.view import Augmentation, View
from pretrain.pixels.boxes import NUM_UNIFORMS as NUM_BOX_UNIFORMS

PLACES: dict[Augmentation, slice] = {
    "crop": slice(0, NUM_BOX_UNIFORMS),
    "color": slice(22, 32),
    "blur": slice(32, 34),
    "flip": slice(34, 35),
    "rotation": slice(35, 37),
    "texture": slice(37, 42),
    "solarize": slice(42, 43),
}
"""Places of an augmentation's numbers among those of a view."""
APPLY_POSITIONS: dict[Augmentation, tuple[int, ...]] = {
    "color": (22, 31),
    "blur": (32,),
    "flip": (34,),
    "rotation": (35,),
    "texture": (37,),
    "solarize": (42,),
}
"""Places of the numbers that decide whether an augmentation happens: below its probability."""
NUM_UNIFORMS = 43

Floats = NDArray[np.float64]


def draw_view_numbers(seed: int, epoch: int, index: int, views: Sequence[View]) -> Floats:
    """Draw the numbers (V, NUM_UNIFORMS) in [0, 1] of the views of one image in one epoch.

    A view has the first view's numbers for the augmentations that it copies, and coins of 1, above
    every probability, for those that it goes without.
    """
    # epoch and image are the high words of a counter: streams of two images never meet
    bits = np.random.Philox(key=seed, counter=[0, 0, epoch, index])
    generator = np.random.Generator(bits)
    first = generator.random((len(views), PLACES["solarize"].start))
    # drawn last, so that the other numbers are the same with and without it
    numbers = np.concatenate([first, generator.random((len(views), 1))], axis=1)
    for row, view in zip(numbers, views, strict=True):
        for augmentation in view.copies:
            row[PLACES[augmentation]] = numbers[0, PLACES[augmentation]]
        for augmentation in view.without:
            row[list(APPLY_POSITIONS[augmentation])] = 1.0
    return numbers
