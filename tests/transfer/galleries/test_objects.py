"""How galleries match and draw the objects of an image."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from transfer.datasets.scenes import Scene, Scenes
from transfer.detection.results import Detections
from transfer.galleries.objects import confident_detections, match, objects

SCENE = Scene(
    name="images/a.png",
    image_id=1,
    width=60,
    height=40,
    boxes=np.array([[0.0, 0.0, 10.0, 10.0], [20.0, 20.0, 40.0, 40.0]]),
    classes=np.array([0, 1]),
    aside=np.array([False, False]),
)


def found(boxes: list[list[float]], classes: list[int], scores: list[float]) -> Detections:
    return Detections(
        height=40,
        width=60,
        boxes=torch.tensor(boxes).reshape(-1, 4),
        scores=torch.tensor(scores),
        classes=torch.tensor(classes, dtype=torch.int64),
    )


def test_a_box_of_the_right_class_on_an_object_finds_it_once() -> None:
    twice = found([[0, 0, 10, 9], [0, 0, 10, 10]], [0, 0], [0.9, 0.8])
    outcome = match(SCENE, twice)
    assert outcome.kinds == ("found", "false")
    assert outcome.missed == (1,)


def test_a_box_of_another_class_on_an_object_is_confused() -> None:
    outcome = match(SCENE, found([[20, 20, 40, 40], [50, 0, 60, 10]], [0, 1], [0.9, 0.8]))
    assert outcome.kinds == ("confused", "false")
    assert outcome.missed == (0, 1)


def test_the_surest_box_is_shown_even_if_it_is_unsure() -> None:
    output = confident_detections(found([[0, 0, 1, 1], [0, 0, 2, 2]], [0, 0], [0.25, 0.125]))
    assert output.scores.tolist() == [0.25]


def test_a_picture_shows_the_truth_beside_the_boxes(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (60, 40), "black").save(tmp_path / "images" / "a.png")
    polygons = ((np.array([0.0, 0.0, 10.0, 0.0, 10.0, 10.0]),), ())
    scenes = Scenes(tmp_path, [replace(SCENE, polygons=polygons)], ("cat", "dog"))
    (tile,) = objects(scenes, [found([[0, 0, 10, 10]], [0], [0.95])])
    assert tile.group == "missed"
    assert tile.caption == "1 of 2 objects found. Surest: cat 0.95"
    picture = np.asarray(Image.open(io.BytesIO(tile.jpeg)))
    assert picture.shape == (40, 126, 3)
    assert picture[30, 20:41, 0].max() > 200  # the missed dog is red on the left
    assert picture[30, 86:107, 0].max() < 60  # and absent on the right
