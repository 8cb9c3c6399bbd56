"""Ten images with one object each, and detections that are all right or all of the next class."""

import json
from pathlib import Path

import numpy as np
import torch

from transfer.datasets.scene_arrays import Scene
from transfer.datasets.scenes import Scenes
from transfer.detection.results import Detections, run_lengths
from transfer.tasks.detection import Detected, Detection

BOX = (8.0, 8.0, 72.0, 56.0)
"""Left, top, right, bottom; COCO calls its area medium."""
OUTLINE = (8.0, 8.0, 72.0, 8.0, 72.0, 56.0, 8.0, 56.0)
HEIGHT, WIDTH = 64, 80


def points() -> np.ndarray:
    """(17, 3), all visible, within the box."""
    x = np.linspace(10, 70, 17)
    return np.stack([x, np.linspace(10, 54, 17), np.full(17, 2.0)], axis=1)


def scenes(num_classes: int, annotations: Path | None) -> Scenes:
    """Image i holds class i % L; with COCO's file where a path is given."""
    labels = [i % num_classes for i in range(10)]
    images = [
        Scene(
            name=f"{i}.jpg",
            image_id=i if annotations else str(i),
            width=WIDTH,
            height=HEIGHT,
            boxes=np.array([BOX]),
            classes=np.array([label]),
            aside=np.array([False]),
        )
        for i, label in enumerate(labels)
    ]
    if annotations is not None:
        annotations.write_text(json.dumps(_coco(labels, num_classes)))
    names = [f"class {k}" for k in range(num_classes)]
    ids = range(1, num_classes + 1) if annotations else ()
    folder = Path()
    return Scenes(folder, images, names, category_ids=tuple(ids), annotations=annotations)


def _coco(labels: list[int], num_classes: int) -> dict[str, object]:
    left, top, right, bottom = BOX
    return {
        "images": [{"id": i, "width": WIDTH, "height": HEIGHT} for i in range(len(labels))],
        "categories": [{"id": k + 1, "name": f"class {k}"} for k in range(num_classes)],
        "annotations": [
            {
                "id": i + 1,
                "image_id": i,
                "category_id": label + 1,
                "bbox": [left, top, right - left, bottom - top],
                "area": (right - left) * (bottom - top),
                "iscrowd": 0,
                "segmentation": [list(OUTLINE)],
                "keypoints": points().flatten().tolist(),
                "num_keypoints": 17,
            }
            for i, label in enumerate(labels)
        ],
    }


def solved_detection(task: Detection, folder: Path, *, right: bool) -> Detected:
    """Return the task's predictions; wrong: other classes, and boxes and keypoints elsewhere."""
    coco = task.dataset.startswith("coco")
    num_classes = 1 if task.recipe.finds == "keypoints" else 5
    truth = scenes(num_classes, folder / "truth.json" if coco else None)
    return Detected(
        [_found(truth.scene(i), num_classes, right) for i in range(10)], truth, task.kinds
    )


def _found(scene: Scene, num_classes: int, right: bool) -> Detections:
    left, top, right_edge, bottom = (round(edge) for edge in BOX)
    mask = torch.zeros(HEIGHT, WIDTH, dtype=torch.bool)
    mask[top:bottom, left:right_edge] = True
    place = torch.tensor(points()) + torch.tensor([0.5, 0.5, 0.0])
    label = int(scene.classes[0]) if right else (int(scene.classes[0]) + 1) % num_classes
    box = torch.tensor([BOX]) if right else torch.tensor([[0.0, 0.0, 4.0, 4.0]])
    return Detections(
        height=HEIGHT,
        width=WIDTH,
        boxes=box,
        scores=torch.tensor([0.9]),
        classes=torch.tensor([label]),
        masks=[run_lengths(mask)],
        keypoints=(place if right else place.flip(0) + 100.0)[None].float(),
    )
