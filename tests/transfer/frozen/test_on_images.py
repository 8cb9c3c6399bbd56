"""Features of images in memory are those of the tasks.

What is not an image is named.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from transfer import Encoder, NotFiniteError
from transfer.datasets.catalog import open_split
from transfer.datasets.folders import Folders
from transfer.encoders.encoder import random_backbone
from transfer.frozen.feature_cache import features_of_backbones
from transfer.frozen.on_features import FeatureError
from transfer.frozen.transforms import EvalTransform


def encoder(size_px: int = 32) -> Encoder:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 4, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
    return Encoder.from_module(
        nn.Sequential(*layers), size_px=size_px, mean=(0.5, 0.4, 0.3), std=(0.25, 0.2, 0.3)
    )


def noise(height: int = 48, width: int = 40) -> Any:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize(("crop_px", "resize_px"), [(32, 32), (24, 27)])
def test_features_equal_those_of_tasks(
    crop_px: int, resize_px: int, small_data: Path, tmp_path: Path
) -> None:
    ours = encoder(crop_px)
    transform = EvalTransform(resize_px=resize_px, crop_px=crop_px)
    folders = Folders(data=small_data, cache=tmp_path, work=tmp_path)
    (expected,) = features_of_backbones([ours], "cifar10", "test", transform, folders)
    images = open_split("cifar10", small_data, "test")
    result = ours.features((images[i][0] for i in range(len(images))), resize_px=resize_px)
    assert torch.equal(result, expected.features)


def test_kinds_of_images_give_equal_features() -> None:
    pixels = noise()
    ours = encoder()
    kinds = [pixels, pixels[..., ::-1][..., ::-1], torch.from_numpy(pixels).permute(2, 0, 1)]
    result = ours.features([Image.fromarray(pixels), *kinds])
    assert result.shape == (4, ours.feature_dim)
    assert result.dtype == torch.float32
    assert torch.equal(result, result[:1].expand(4, -1))
    gray = Image.fromarray(pixels).convert("L")
    assert torch.equal(ours.features([gray]), ours.features([gray.convert("RGB")]))


def test_resnets_give_features_too() -> None:
    resnet = random_backbone(arch="resnet18", stem="cifar", seed=0, input=encoder().input)
    with torch.no_grad():
        pixels = torch.from_numpy(noise(32, 32)).permute(2, 0, 1)
        mean, std = torch.tensor([resnet.input.mean, resnet.input.std])[..., None, None]
        expected = resnet.network()(((pixels / 255 - mean) / std)[None])
    result = resnet.features(pixels[None])
    # float32 sums of 9 * 512 terms in another memory layout
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([Image.new("RGB", (32, 32)), "a.jpg"], r"image 1: str; expected"),
        ([noise() / np.float32(255)], r"image 0: ndarray \(48, 40, 3\) of float32; expected"),
        ([noise().transpose(2, 0, 1)], r"ndarray \(3, 48, 40\) of uint8; expected"),
        (noise(), r"image 0: ndarray \(40, 3\)"),
        (torch.zeros(2, 3, 8, 8), r"image 0: Tensor \(3, 8, 8\) of float32"),
        ([Image.new("F", (32, 32))], "image 0: Pillow's mode F"),
        (Image.new("RGB", (32, 32)), r"images is a Image; expected .*\[image\]"),
        ([], "images is empty"),
    ],
)
def test_what_is_not_an_image_is_named(images: Any, message: str) -> None:
    with pytest.raises(FeatureError, match=message):
        encoder().features(images)


def test_resize_smaller_than_crop_is_refused() -> None:
    with pytest.raises(FeatureError, match="resize_px is 31; expected at least 32"):
        encoder().features([noise()], resize_px=31)


def test_image_with_infinite_features_is_named() -> None:
    class Bright(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            means = images.mean(dim=(2, 3))
            return means / (means < 1)

    ours = Encoder.from_module(Bright(), size_px=8, mean=(0, 0, 0), std=(1, 1, 1))
    images = [Image.new("RGB", (8, 8), color) for color in ("black", "gray", "white")]
    with pytest.raises(NotFiniteError, match="image 2"):
        ours.features(images)
