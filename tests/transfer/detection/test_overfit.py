"""A detector overfits a few images from random weights."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from pretrain.running.processes import Process
from tests.transfer.detection.scenes import scene, with_coco_file
from transfer.datasets.scenes import Scenes
from transfer.detection.coco_ap import coco_ap
from transfer.detection.engines import build_detector
from transfer.detection.recipe import COCO_FPN_MASKS
from transfer.detection.results import detect
from transfer.detection.samples import training_sample
from transfer.encoders.encoder import random_backbone
from transfer.finetuning.loop import train
from transfer.finetuning.state import Training
from transfer.finetuning.stream import single_samples

HEIGHT, WIDTH = 96, 128
COLORS = ("crimson", "royalblue")
"""Colors of the two classes."""
BOXES = (
    ((10, 12, 50, 84), (76, 30, 120, 66)),
    ((70, 8, 118, 52), (8, 50, 60, 90)),
    ((40, 20, 90, 80),),
    ((6, 6, 46, 40), (60, 44, 122, 92)),
)
"""Left, top, right, bottom of the objects on each image.

Their classes alternate.
"""
BY_HEART = replace(
    COCO_FPN_MASKS.tiny(),
    train_short_px=(HEIGHT,),
    test_short_px=HEIGHT,
    flip_share=0.0,
    fpn_channels=64,
    box_head_fc_channels=128,
    mask_head_channels=64,
    roi_samples=8,
    learning_rate=0.01,
    iterations=200,
    milestones=(140, 180),
    warmup_iterations=20,
    precise_norm_batches=4,
)
"""Of 8 regions of an image two may be objects.

Among 64 the background has nearly all of the loss, and how long the classes stay the same to the
classifier depends on the last bits (of three drawings of the weights one took more than 400
iterations).
"""


def drawn(folder: Path) -> Scenes:
    """Colored diamonds on gray."""
    images = []
    for number, boxes in enumerate(BOXES):
        image = Image.new("RGB", (WIDTH, HEIGHT), "gray")
        labels = [(number + k) % 2 for k in range(len(boxes))]
        outlines = []
        for (left, top, right, bottom), label in zip(boxes, labels, strict=True):
            x, y = (left + right) / 2, (top + bottom) / 2
            outlines.append([x, top, right, y, x, bottom, left, y])
            ImageDraw.Draw(image).polygon(outlines[-1], fill=COLORS[label])
        image.save(folder / f"{number}.png")
        shapes = {
            "polygons": tuple((np.array(outline),) for outline in outlines),
            "keypoints": np.zeros((len(boxes), 17, 3)),
        }
        images.append(scene(f"{number}.png", number, WIDTH, HEIGHT, boxes, labels, **shapes))
    return with_coco_file(folder, images, ["red", "blue"], folder / "truth.json")


@pytest.mark.slow
def test_four_images_are_learned_by_heart(tmp_path: Path) -> None:
    images, process = drawn(tmp_path), Process(device=torch.device("cpu"))
    torch.manual_seed(0)
    detector = build_detector("torchvision", BY_HEART, arch="resnet18", num_classes=2, norm="BN")
    backbone = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    detector.load_backbone(backbone.state_dict)
    samples = single_samples(images, training_sample, BY_HEART, 0)
    optimizer = detector.optimizer(BY_HEART)
    training = Training(network=detector, optimizer=optimizer, schedule=BY_HEART, folder=tmp_path)
    train(training, samples, seed=0, process=process)
    result, _ = coco_ap(detect(detector, images, BY_HEART, process), images, ["bbox", "segm"])
    assert all(result[kind]["AP50"] > 80 for kind in result)
