"""Boxes of images, resized to squares in eight bits on one core.

Only the box is resized, bilinearly with antialiasing. Like Pillow's, each of the two passes rounds
to integers, with weights of 16 bits instead of 22. After the first pass, levels differ from
Pillow's by at most 1, and so does their average before the second pass rounds; so final levels
differ by at most 2. For natural images, 3 % of the values differ, nearly all by 1.
"""

from collections.abc import Sequence

import torch
from torch.nn.functional import interpolate

from pretrain.pixels.decoding import Pixels


def crop(pixels: Pixels, box: Sequence[int], size_px: int) -> Pixels:
    """Cut out a box and resize it to a square.

    pixels (H, W, 3), result (S, S, 3). box: top, left, height, width. Bilinear with antialiasing.
    """
    top, left, height, width = box
    cut = torch.from_numpy(pixels[top : top + height, left : left + width])
    # with a batch axis, torch recognizes channels last, for which resizing is fast
    image = cut[None].permute(0, 3, 1, 2)
    resized = interpolate(image, size=(size_px, size_px), mode="bilinear", antialias=True)
    view: Pixels = resized[0].permute(1, 2, 0).contiguous().numpy()
    return view


def orient(view: Pixels, *, flip: bool, quarters: int) -> Pixels:
    """Return a square (S, S, 3), mirrored, then rotated counterclockwise."""
    # torch copies pixels ten times as fast as NumPy, with the same result
    square = torch.from_numpy(view)
    if flip:
        square = square.flip(1)
    oriented: Pixels = (torch.rot90(square, quarters) if quarters else square).numpy()
    return oriented
