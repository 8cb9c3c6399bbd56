"""Counts over the arrays are those of a loop over the images, and packed scenes come out again."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from transfer.datasets.catalog import open_scenes
from transfer.datasets.scene_arrays import Scene
from transfer.datasets.scenes import Scenes, usable_for_training

KEYS = ("coco17", "coco17_keypoints", "voc0712")


def _usable(scenes: Scenes, finds: str) -> list[int]:
    """Return the usable images, one by one."""
    usable = []
    for i, scene in enumerate(scenes):
        keep = not scene.aside.all() if scenes.aside_are_crowds else len(scene.boxes) > 0
        if finds == "keypoints":
            labeled = scene.keypoints is not None and (scene.keypoints[..., 2] > 0).any()
            keep = keep and bool(labeled)
        if keep:
            usable.append(i)
    return usable


def test_usable_images_are_those_of_a_loop(small_data: Path, subtests: pytest.Subtests) -> None:
    for split in ["train", "test"]:
        for key in KEYS:
            with subtests.test(split=split, key=key):
                scenes = open_scenes(key, small_data, split)
                kinds: tuple[Literal["boxes", "masks", "keypoints"], ...] = (
                    "boxes",
                    "masks",
                    "keypoints",
                )
                for finds in kinds:
                    assert usable_for_training(scenes, finds).tolist() == _usable(scenes, finds)


@pytest.mark.parametrize("key", KEYS)
def test_objects_per_class_are_those_of_a_loop(key: str, small_data: Path) -> None:
    scenes = open_scenes(key, small_data, "trainval").subset([7, 3, 3, 11, 2])
    counts = np.zeros(len(scenes.class_names), dtype=np.int64)
    for scene in scenes:
        np.add.at(counts, scene.classes[~scene.aside], 1)
    assert counts.any()
    assert scenes.objects_per_class().tolist() == counts.tolist()


def _scene(name: str, image_id: int | str, objects: int, *, outlines: bool, points: bool) -> Scene:
    draw = np.random.default_rng(objects)
    polygons = tuple(tuple(draw.random(6 + 2 * j) for j in range(i % 3)) for i in range(objects))
    return Scene(
        name=name,
        image_id=image_id,
        width=40,
        height=30,
        boxes=draw.random((objects, 4)),
        classes=draw.integers(0, 2, objects),
        aside=draw.random(objects) < 0.5,
        polygons=polygons if outlines else None,
        keypoints=draw.random((objects, 17, 3)) if points else None,
    )


def test_packed_scenes_come_out_again() -> None:
    scenes = [
        _scene("a/größe.jpg", 2**70, 3, outlines=True, points=False),
        _scene("b.jpg", "2007_000001", 0, outlines=True, points=True),
        _scene("c.jpg", 0, 4, outlines=False, points=True),
        _scene("d.jpg", -1, 0, outlines=False, points=False),
        _scene("e.jpg", 5, 5, outlines=True, points=True),
    ]
    packed = Scenes(Path(), scenes, ("x", "y"))
    for before, after in zip(scenes, packed, strict=True):
        assert (before.name, before.image_id) == (after.name, after.image_id)
        assert list(before.parts()) == list(after.parts())
        assert (before.polygons is None) == (after.polygons is None)
        if before.polygons is not None and after.polygons is not None:
            assert list(map(len, before.polygons)) == list(map(len, after.polygons))
        assert (before.keypoints is None) == (after.keypoints is None)
        if before.keypoints is not None and after.keypoints is not None:
            assert before.keypoints.shape == after.keypoints.shape
