"""Training samples and test images of a detector, resized and flipped.

Pixels, boxes, outlines and keypoints are the same as from detectron2's DatasetMapper.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from transfer.datasets.expected import DataError
from transfer.datasets.images import decode_upright
from transfer.datasets.scenes import Scenes
from transfer.detection.detector import Sample
from transfer.detection.recipe import DetectorRecipe
from transfer.finetuning.stream import pixels

MAX_EMPTY_SIDE_PX = 1e-5
"""Boxes with a side up to this length are dropped."""
FLIPPED_INDEX = (0, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 16, 15)
"""Index of each COCO keypoint after a flip."""


def training_sample(
    scenes: Scenes, index: int, recipe: DetectorRecipe, seed: int | Sequence[int]
) -> Sample:
    """Return an image and its objects with a random size and flip.

    seed: one or several numbers that determine size and flip.
    """
    random = np.random.default_rng(seed)
    short_px = recipe.train_short_px[int(random.integers(len(recipe.train_short_px)))]
    flipped = bool(random.random() < recipe.flip_share)
    return resize_sample(scenes, index, recipe, short_px=short_px, flipped=flipped)


def image_for_test(scenes: Scenes, index: int, recipe: DetectorRecipe) -> Tensor:
    """Return a uint8 image (3, H, W), resized for the test."""
    image = upright_image(scenes, index)
    size = resized_size(image.size, recipe.test_short_px, recipe.long_px)
    return pixels(image.resize(size, Image.Resampling.BILINEAR))


def resize_sample(
    scenes: Scenes, index: int, recipe: DetectorRecipe, *, short_px: int, flipped: bool
) -> Sample:
    """Return an image with a shorter side of `short_px`, and its objects.

    COCO's crowds and boxes that are empty within the image are left out. VOC's difficult objects
    are used like all others.
    """
    scene = scenes.scene(index)
    image = upright_image(scenes, index)
    width, height = resized_size(image.size, short_px, recipe.long_px)
    scale = (width / scene.width, height / scene.height)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    if flipped:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)

    def transform(xy: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert points (..., 2) from the original to the resized image."""
        points: NDArray[np.float64] = xy * np.array(scale)
        if flipped:
            points[..., 0] = width - points[..., 0]
        return points

    corners = transform(scene.boxes.reshape(-1, 2, 2))
    sides = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    sides = np.minimum(sides.clip(min=0), np.array([width, height] * 2, dtype=np.float64))
    boxes = torch.from_numpy(sides).float()
    is_kept = (boxes[:, 2:] - boxes[:, :2] > MAX_EMPTY_SIDE_PX).all(dim=1).numpy()
    if scenes.category_ids:  # for COCO, `aside` marks crowds
        is_kept &= ~scene.aside
    polygons = keypoints = None
    if recipe.finds == "masks" and scene.polygons is not None:
        is_kept &= np.array([len(outlines) > 0 for outlines in scene.polygons], dtype=np.bool_)
        polygons = tuple(
            tuple(transform(outline.reshape(-1, 2)).reshape(-1) for outline in outlines)
            for outlines, keep in zip(scene.polygons, is_kept, strict=True)
            if keep
        )
    if recipe.finds == "keypoints" and scene.keypoints is not None:
        annotated = scene.keypoints[is_kept]
        # annotations are pixel indices; pixel centers have an offset of 0.5
        positions = transform(annotated[..., :2] + 0.5)
        keypoints = _keypoints(positions, annotated[..., 2:], (width, height), flipped=flipped)
    return Sample(
        image=pixels(image),
        boxes=boxes[is_kept],
        classes=torch.from_numpy(scene.classes[is_kept]),
        polygons=polygons,
        keypoints=keypoints,
    )


def _keypoints(
    positions: NDArray[np.float64],
    labels: NDArray[np.float64],
    size: tuple[int, int],
    *,
    flipped: bool,
) -> Tensor:
    """Return keypoints (m, 17, 3); outside of the image they are unlabeled."""
    inside = (positions >= 0) & (positions <= np.array(size))
    labels = np.where(inside.all(axis=2, keepdims=True), labels, 0.0)
    keypoints = np.concatenate([positions, labels], axis=2)
    if flipped:
        keypoints = keypoints[:, FLIPPED_INDEX]
    return torch.from_numpy(np.where(keypoints[..., 2:] == 0, 0.0, keypoints)).float()


def upright_image(scenes: Scenes, index: int) -> Image.Image:
    """Return an RGB image, rotated by its EXIF orientation.

    Raises DataError if its size differs from the annotation.
    """
    path = scenes.source.folder / scenes.name(index)
    image = decode_upright(path)
    scene = scenes.scene(index)
    if image.size != (scene.width, scene.height):
        raise DataError(
            f"{path}: the image has {image.size[0]} x {image.size[1]} px, its annotation says "
            f"{scene.width} x {scene.height}. Unpack images and annotations of one release again"
        )
    return image


def resized_size(size: tuple[int, int], short_px: int, long_px: int) -> tuple[int, int]:
    """Return width and height of the resized image.

    The shorter side is short_px, unless the longer side would exceed long_px. The operations are in
    detectron2's order, since it determines how halves are rounded.
    """
    width, height = size
    scale = float(short_px) / min(width, height)
    new_width, new_height = scale * width, scale * height
    if height < width:
        new_height = float(short_px)
    else:
        new_width = float(short_px)
    longest = max(new_width, new_height)
    if longest > long_px:
        shrink = float(long_px) / longest
        new_width, new_height = new_width * shrink, new_height * shrink
    return int(new_width + 0.5), int(new_height + 0.5)
