"""Ten images with one object each, and detections with known scores.

All detections are right, or all are of the next class.
"""

from pathlib import Path

import numpy as np
import torch

from tests.transfer.detection.scenes import scene, with_coco_file
from transfer.datasets.scenes import Scene, Scenes
from transfer.detection.results import Detections, run_lengths
from transfer.tasks.detection import Detected, Detection

BOX = (8.0, 8.0, 72.0, 56.0)
"""Left, top, right, bottom; COCO calls its area medium."""
OUTLINE = np.array([8.0, 8.0, 72.0, 8.0, 72.0, 56.0, 8.0, 56.0])
HEIGHT, WIDTH = 64, 80
POINTS = np.stack([np.linspace(10, 70, 17), np.linspace(10, 54, 17), np.full(17, 2.0)], axis=1)
"""All visible, within the box."""


def solved_detection(task: Detection, folder: Path, *, right: bool) -> Detected:
    """Return the task's predictions; wrong: other classes, and boxes and keypoints elsewhere."""
    coco = task.dataset.startswith("coco")
    num_classes = 1 if task.recipe.finds == "keypoints" else 5
    images = [
        scene(
            f"{i}.jpg",
            i if coco else str(i),
            WIDTH,
            HEIGHT,
            [BOX],
            [i % num_classes],
            polygons=((OUTLINE,),),
            keypoints=POINTS[None],
        )
        for i in range(10)
    ]
    names = [f"class {k}" for k in range(num_classes)]
    truth = Scenes(Path(), images, names)
    if coco:
        truth = with_coco_file(Path(), images, names, folder / "truth.json")
    return Detected([_found(image, num_classes, right) for image in images], truth, task.kinds)


def _found(scene: Scene, num_classes: int, right: bool) -> Detections:
    left, top, right_edge, bottom = (round(edge) for edge in BOX)
    mask = torch.zeros(HEIGHT, WIDTH, dtype=torch.bool)
    mask[top:bottom, left:right_edge] = True
    location = torch.tensor(POINTS) + torch.tensor([0.5, 0.5, 0.0])
    label = int(scene.classes[0]) if right else (int(scene.classes[0]) + 1) % num_classes
    box = torch.tensor([BOX]) if right else torch.tensor([[0.0, 0.0, 4.0, 4.0]])
    return Detections(
        height=HEIGHT,
        width=WIDTH,
        boxes=box,
        scores=torch.tensor([0.9]),
        classes=torch.tensor([label]),
        masks=[run_lengths(mask)],
        keypoints=(location if right else location.flip(0) + 100.0)[None].float(),
    )
