"""Counts over the arrays are those of a loop over the images."""

from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pytest

from transfer.datasets.catalog import open_scenes
from transfer.datasets.scenes import Scenes, usable_for_training

KEYS = ("coco17", "coco17_keypoints", "voc0712")
Finds = Literal["boxes", "masks", "keypoints"]


def usable_by_a_loop(scenes: Scenes, finds: Finds) -> list[int]:
    usable = []
    for i, scene in enumerate(scenes):
        keep = not scene.aside.all() if scenes.aside_are_crowds else len(scene.boxes) > 0
        if finds == "keypoints":
            labeled = scene.keypoints is not None and (scene.keypoints[..., 2] > 0).any()
            keep = keep and bool(labeled)
        if keep:
            usable.append(i)
    return usable


@pytest.mark.parametrize("key", KEYS)
def test_usable_images_are_those_of_a_loop(key: str, small_data: Path) -> None:
    for split in ("train", "test"):
        scenes = open_scenes(key, small_data, split)
        for finds in get_args(Finds):
            assert usable_for_training(scenes, finds).tolist() == usable_by_a_loop(scenes, finds)


@pytest.mark.parametrize("key", KEYS)
def test_objects_per_class_are_those_of_a_loop(key: str, small_data: Path) -> None:
    scenes = open_scenes(key, small_data, "trainval").subset([7, 3, 3, 11, 2])
    counts = np.zeros(len(scenes.class_names), dtype=np.int64)
    for scene in scenes:
        np.add.at(counts, scene.classes[~scene.aside], 1)
    assert counts.any()
    assert scenes.objects_per_class().tolist() == counts.tolist()
