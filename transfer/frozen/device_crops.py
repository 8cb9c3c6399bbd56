"""Random crops of kept images on a GPU: the host draws boxes, the GPU holds all pixels.

Each crop has its own size, so it is a few operations of its own, and none of them waits. Levels
differ from those of crops made on the host by at most 1.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.pixels.crop_device import crop_one
from transfer.frozen.kept_images import KeptImages

MOST_OF_FREE = 0.25
"""Share of a GPU's free memory that kept images may take."""
UPLOAD_BYTES = 2**28
"""Bytes that are uploaded at a time."""


class PackedImages(NamedTuple):
    """Pixels of the images of one batch, one after the other, as KeptImages has those of a set."""

    sizes: NDArray[np.int64]
    """(n, 2), heights and widths."""
    ends: NDArray[np.int64]
    """(n,), the place behind each image."""
    pixels: NDArray[np.uint8]


def fits_on(kept: KeptImages, where: torch.device) -> bool:
    """Return whether a device is a GPU with room for the kept images."""
    if where.type != "cuda":
        return False
    free, _ = torch.cuda.mem_get_info(where)
    return len(kept.pixels) <= MOST_OF_FREE * free


class DeviceCrops:
    """Kept images on a device, and crops of them."""

    def __init__(self, kept: KeptImages | PackedImages, px: int, where: torch.device) -> None:
        self.sizes, self.ends = kept.sizes, kept.ends
        self.px, self.where = px, where
        self.pixels = torch.empty(len(kept.pixels), dtype=torch.uint8, device=where)
        for start in range(0, len(kept.pixels), UPLOAD_BYTES):
            part = torch.from_numpy(kept.pixels[start : start + UPLOAD_BYTES])
            self.pixels[start : start + UPLOAD_BYTES].copy_(part)

    def __call__(self, views: Tensor) -> Tensor:
        """Return pixels (n, 3, S, S) uint8 on the device, of views (n, 7) on the host."""
        crops = [crop_one(self._image(index), box, self.px) for index, *box, _, _ in views.tolist()]
        pixels = torch.stack(crops)
        there = views.to(self.where, non_blocking=True)
        # where, not a masked assignment: the host would wait for the number of masked rows
        pixels = torch.where((there[:, 5] == 1)[:, None, None, None], pixels.flip(3), pixels)
        for quarters in (1, 2, 3):
            # asked of the host's copy; the answer of a GPU would have to be waited for
            if bool((views[:, 6] == quarters).any()):
                turned = (there[:, 6] == quarters)[:, None, None, None]
                pixels = torch.where(turned, pixels.rot90(quarters, (2, 3)), pixels)
        return pixels.to(torch.uint8).contiguous(memory_format=torch.channels_last)

    def _image(self, index: int) -> Tensor:
        """Return the pixels (H, W, 3) of an image on the device."""
        height, width = self.sizes[index].tolist()
        end = int(self.ends[index])
        return self.pixels[end - 3 * height * width : end].view(height, width, 3)
