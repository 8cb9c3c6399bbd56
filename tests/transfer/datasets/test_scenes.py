"""Counts over the arrays are those of a loop over the images, and packed scenes come out again."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from transfer.datasets.catalog import open_scenes
from transfer.datasets.scenes import Scene, Scenes, usable_for_training

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


@pytest.mark.parametrize(("outlines", "points"), [(True, False), (False, True), (False, False)])
def test_packed_scenes_come_out_again(outlines: bool, points: bool) -> None:
    names: dict[str, tuple[int | str, int]] = {
        "a/größe.jpg": (2**70, 3),
        "b.jpg": ("2007_000001", 0),
        "c.jpg": (-1, 5),
    }
    scenes = [
        _scene(name, image_id, objects, outlines=outlines, points=points)
        for name, (image_id, objects) in names.items()
    ]
    for before, after in zip(scenes, Scenes(Path(), scenes, ("x", "y")), strict=True):
        assert (before.name, before.image_id) == (after.name, after.image_id)
        assert list(before.parts()) == list(after.parts())
        if outlines:
            assert list(map(len, before.polygons or ())) == list(map(len, after.polygons or ()))
        assert (after.polygons is None) != outlines
        assert (after.keypoints is None) != points
