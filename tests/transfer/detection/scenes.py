"""Scenes for tests, and COCO's file of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transfer.datasets.scenes import Scene, Scenes


def scene(
    name: str,
    image_id: int | str,
    width: int,
    height: int,
    boxes: Sequence[Sequence[float]] | np.ndarray = (),
    classes: Sequence[int] = (),
    **more: Any,
) -> Scene:
    """None of its objects is aside unless that is given."""
    return Scene(
        name=name,
        image_id=image_id,
        width=width,
        height=height,
        boxes=np.array(boxes, dtype=np.float64).reshape(-1, 4),
        classes=np.array(classes, dtype=np.int64),
        **{"aside": np.zeros(len(classes), dtype=np.bool_), **more},
    )


def with_coco_file(
    folder: Path, scenes: Sequence[Scene], class_names: Sequence[str], file: Path
) -> Scenes:
    """A split, and COCO's file of it.

    Each object has one outline and all of its keypoints.
    """
    annotations: list[dict[str, object]] = []
    for item in scenes:
        assert item.polygons is not None
        assert item.keypoints is not None
        objects = zip(item.boxes, item.classes, item.polygons, item.keypoints, strict=True)
        for box, label, (outline,), points in objects:
            x, y = outline[::2], outline[1::2]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": item.image_id,
                    "category_id": int(label) + 1,
                    "bbox": [*box[:2], *(box[2:] - box[:2])],
                    "area": abs(float(x @ np.roll(y, 1) - y @ np.roll(x, 1))) / 2,
                    "iscrowd": 0,
                    "segmentation": [outline.tolist()],
                    "keypoints": points.flatten().tolist(),
                    "num_keypoints": 17,
                }
            )
    images = [{"id": item.image_id, "width": item.width, "height": item.height} for item in scenes]
    categories = [{"id": number, "name": name} for number, name in enumerate(class_names, 1)]
    content = {"images": images, "categories": categories, "annotations": annotations}
    file.write_text(json.dumps(content))
    ids = range(1, len(class_names) + 1)
    return Scenes(folder, scenes, class_names, category_ids=ids, annotations=file)
