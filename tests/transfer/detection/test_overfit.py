"""A handful of images can be learned by heart: boxes, masks and keypoints, from random weights."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from pretrain.running.processes import Process
from tests.transfer.detection.scenes import scene, with_coco_file
from transfer.backbone import random_backbone
from transfer.datasets.scenes import Scene, Scenes
from transfer.detection.coco_ap import Kind, coco_ap
from transfer.detection.engines import build_detector
from transfer.detection.recipe import COCO_FPN_KEYPOINTS, COCO_FPN_MASKS, DetectorRecipe
from transfer.detection.train import detect, train

HEIGHT, WIDTH = 96, 128
COLORS = ("crimson", "royalblue")
"""Colors of the two classes."""
BOXES = (
    ((10, 12, 50, 84), (76, 30, 120, 66)),
    ((70, 8, 118, 52), (8, 50, 60, 90)),
    ((40, 20, 90, 80),),
    ((6, 6, 46, 40), (60, 44, 122, 92)),
)
"""Left, top, right, bottom of the objects on each image; their classes alternate."""


def points(box: tuple[int, int, int, int]) -> np.ndarray:
    """(17, 3): on a ring within the box, all visible."""
    left, top, right, bottom = box
    turn = np.arange(17) / 17 * 2 * np.pi
    x = (left + right) / 2 + 0.35 * (right - left) * np.cos(turn)
    y = (top + bottom) / 2 + 0.35 * (bottom - top) * np.sin(turn)
    return np.stack([x.round(), y.round(), np.full(17, 2.0)], axis=1)


def outline(box: tuple[int, int, int, int]) -> np.ndarray:
    """A diamond."""
    left, top, right, bottom = box
    x, y = (left + right) / 2, (top + bottom) / 2
    return np.array([x, top, right, y, x, bottom, left, y], dtype=np.float64)


def drawn(folder: Path, *, with_points: bool) -> Scenes:
    """Colored diamonds on gray; with points: one class, and a dot for each of 17 keypoints."""
    images: list[Scene] = []
    for number, boxes in enumerate(BOXES):
        image = Image.new("RGB", (WIDTH, HEIGHT), "gray")
        labels = [0 if with_points else (number + k) % 2 for k in range(len(boxes))]
        for box, label in zip(boxes, labels, strict=True):
            pen = ImageDraw.Draw(image)
            pen.polygon(outline(box).tolist(), fill=COLORS[label])
            for k, (x, y, _) in enumerate(points(box) if with_points else ()):
                pen.ellipse((x - 2, y - 2, x + 2, y + 2), fill=(15 * k, 255 - 15 * k, 90))
        name = f"{number}.png"
        image.save(folder / name)
        polygons = tuple((outline(box),) for box in boxes)
        keypoints = np.stack([points(box) for box in boxes])
        shapes = {"polygons": polygons, "keypoints": keypoints}
        images.append(scene(name, number, WIDTH, HEIGHT, boxes, labels, **shapes))
    names = ["red", "blue"][: 1 if with_points else 2]
    return with_coco_file(folder, images, names, folder / "truth.json")


def by_heart(recipe: DetectorRecipe) -> DetectorRecipe:
    """Narrow, without flips and at one size.

    Where there are two classes, only 8 regions of an image are drawn, of which two may be objects:
    among 64 the background has nearly all of the loss, and how long the classes stay the same to
    the classifier depends on the last bits (of three drawings of the weights one took more than
    400 iterations).
    """
    return replace(
        recipe.tiny(),
        train_short_px=(HEIGHT,),
        test_short_px=HEIGHT,
        flip_share=0.0,
        fpn_channels=64,
        box_head_fc_channels=128,
        mask_head_channels=64,
        keypoint_head_channels=64,
        roi_samples=8 if recipe.finds == "masks" else 64,
        learning_rate=0.01,
        iterations=200,
        milestones=(140, 180),
        warmup_iterations=20,
        precise_norm_batches=4,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "kinds"),
    [(COCO_FPN_MASKS, ("bbox", "segm")), (COCO_FPN_KEYPOINTS, ("bbox", "keypoints"))],
    ids=["masks", "keypoints"],
)
def test_four_images_are_learned_by_heart(
    recipe: DetectorRecipe, kinds: tuple[Kind, ...], tmp_path: Path
) -> None:
    recipe = by_heart(recipe)
    images = drawn(tmp_path, with_points="keypoints" in kinds)
    backbone = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    torch.manual_seed(0)
    num_classes = len(images.class_names)
    detector = build_detector(
        "torchvision", recipe, arch="resnet18", num_classes=num_classes, norm="BN"
    )
    detector.load_backbone(backbone.state_dict)
    process = Process(device=torch.device("cpu"))
    every = np.arange(len(images))
    train(detector, images, every, recipe, seed=0, folder=tmp_path, process=process)
    found = coco_ap(detect(detector, images, recipe, process), images, kinds)
    assert all(found[kind]["AP50"] > 80 for kind in kinds)
