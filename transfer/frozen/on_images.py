"""Features of images in memory, computed as in the tasks."""

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from pretrain.pixels.decoding import rgb_pixels
from transfer.encoders.encoder import Encoder
from transfer.frozen.extraction import IMAGES_PER_BATCH
from transfer.frozen.finite import require_finite
from transfer.frozen.network import device, forward, frozen_network
from transfer.frozen.on_features import FeatureError
from transfer.frozen.transforms import EvalTransform, Normalization
from transfer.process_state import torch_defaults

EXPECTED = (
    "expected a Pillow image, an array (H, W, 3) or a tensor (3, H, W) of uint8, neither resized "
    "nor normalized: the encoder does both"
)


@torch_defaults()
def image_features(
    backbone: Encoder,
    images: Iterable[Image.Image | NDArray[np.uint8] | Tensor],
    *,
    resize_px: int | None = None,
) -> Tensor:
    """Return features (n, C) float32 on the CPU; see `Encoder.features`."""
    crop_px = backbone.input.size_px
    if resize_px is not None and resize_px < crop_px:
        raise FeatureError(f"resize_px is {resize_px}; expected at least {crop_px}, the crop size")
    transform = EvalTransform(resize_px=resize_px or crop_px, crop_px=crop_px)
    if isinstance(images, Image.Image) or not isinstance(images, Iterable):
        raise FeatureError(
            f"images is a {type(images).__name__}; expected a sequence of images: [image] for one"
        )
    network = frozen_network(backbone)
    normalize = Normalization(backbone.input, device())
    crops, batches = _crops(images, transform), []
    while batch := list(islice(crops, IMAGES_PER_BATCH)):
        batches.append(forward(network, normalize(torch.stack(batch))).cpu())
    if not batches:
        raise FeatureError("images is empty; expected at least one image")
    features = torch.cat(batches)
    require_finite(features, "image {}".format, f"by {backbone.name}")
    return features


def _crops(
    images: Iterable[Image.Image | NDArray[np.uint8] | Tensor], transform: EvalTransform
) -> Iterator[Tensor]:
    """Yield the pixels (3, crop_px, crop_px) uint8 of each image."""
    for index, image in enumerate(images):
        try:
            cropped = np.array(transform.pixels(Image.fromarray(_pixels(image))))
        except ValueError as error:
            raise FeatureError(f"image {index}: {error}") from error
        yield torch.from_numpy(cropped).permute(2, 0, 1)


def _pixels(image: Image.Image | NDArray[np.uint8] | Tensor) -> NDArray[np.uint8]:
    """Return RGB pixels (H, W, 3); raise ValueError for other than an 8-bit image."""
    if isinstance(image, Image.Image):
        return rgb_pixels(image)
    description = f"{type(image).__name__}"
    if isinstance(image, Tensor | np.ndarray):
        dtype = str(image.dtype).removeprefix("torch.")
        description += f" {tuple(image.shape)} of {dtype}"
        if isinstance(image, Tensor) and dtype == "uint8" and image.ndim == 3:
            image = image.detach().cpu().permute(1, 2, 0).numpy()
        if dtype == "uint8" and image.ndim == 3 and image.shape[2] == 3 and image.size:
            return np.ascontiguousarray(image)
    raise ValueError(f"{description}; {EXPECTED}")
