"""Galleries of dense predictions next to the ground truth.

They show boxes, masks, keypoints and pixel classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torchvision.ops import box_iou

from transfer.datasets.scenes import Scene, Scenes
from transfer.datasets.segmented import IGNORED, Mask, Segmented, voc_palette
from transfer.detection.results import Detections
from transfer.galleries.tile import Tile, jpeg, select_images, side_by_side, thumbnail

MIN_SCORE = 0.3
"""Minimum score of a shown detection; the highest-scoring one is always shown."""
MAX_DETECTIONS = 12
MIN_IOU = 0.5
"""Minimum IoU of a detection with an object."""
COLORS = {"found": "#00d48a", "confused": "#ffb000", "false": "#c0c6cc", "missed": "#ff4d6d"}
ORDER = ("found", "missed", "confused", "nothing there")


@dataclass(frozen=True)
class Outcome:
    """Outcomes of the shown detections, and the missed objects."""

    kinds: tuple[str, ...]
    """found, confused or false, for each shown detection."""
    missed: tuple[int, ...]
    """Indices of the objects without a shown detection of their class."""


def objects(scenes: Scenes, detections: Sequence[Detections]) -> list[Tile]:
    """Return tiles with ground truth and detections, ordered by outcome."""
    indices = select_images([scenes.name(i) for i in range(len(scenes))])
    tiles = [_tile(scenes, i, confident_detections(detections[i])) for i in indices]
    return sorted(tiles, key=lambda tile: ORDER.index(tile.group))


def confident_detections(detections: Detections) -> Detections:
    """Return the detections to show, the most confident first."""
    num_confident = int((detections.scores >= MIN_SCORE).sum())
    number = min(max(num_confident, 1), MAX_DETECTIONS)
    fields = ("boxes", "scores", "classes", "masks", "keypoints")
    values = {name: getattr(detections, name) for name in fields}
    first = {name: value[:number] for name, value in values.items() if value is not None}
    return replace(detections, **first)


def match(scene: Scene, detections: Detections) -> Outcome:
    """Match detections with objects; the most confident detection of an object wins.

    `aside` objects (crowds and difficult ones) are neither missed nor confused.
    """
    iou_matrix = box_iou(detections.boxes.double(), torch.from_numpy(scene.boxes)).tolist()
    unmatched = set(range(len(scene.boxes)))
    kinds = []
    for ious, detected_class in zip(iou_matrix, detections.classes.tolist(), strict=True):
        overlapping = sorted((j for j in unmatched if ious[j] >= MIN_IOU), key=lambda j: -ious[j])
        same_class = [j for j in overlapping if scene.classes[j] == detected_class]
        unmatched -= set(same_class[:1])
        regular = [j for j in overlapping if not scene.aside[j]]
        kinds.append("found" if same_class else "confused" if regular else "false")
    missed = tuple(sorted(j for j in unmatched if not scene.aside[j]))
    return Outcome(tuple(kinds), missed)


def _tile(scenes: Scenes, i: int, detections: Detections) -> Tile:
    scene, image = scenes.scene(i), scenes.source.decode(i)
    outcome = match(scene, detections)
    small = thumbnail(image)
    scale = small.width / image.width
    truth = _draw_truth(small, scene, outcome, scale)
    pair = side_by_side(truth, _draw_detections(small, scene, detections, outcome, scale))
    names, kinds = scenes.class_names, outcome.kinds
    num_objects = int((~scene.aside).sum())
    counts = [f"{kinds.count('found')} of {num_objects} objects found"]
    group = "nothing there" if not num_objects else "missed" if outcome.missed else "found"
    if "confused" in kinds:
        group = "confused" if num_objects else group
        counts.append(f"{kinds.count('confused')} taken for another class")
    if "false" in kinds:
        counts.append(f"{kinds.count('false')} where there is none")
    top = zip(detections.classes[:3].tolist(), detections.scores[:3].tolist(), strict=True)
    top_text = ", ".join(f"{names[c]} {score:.2f}" for c, score in top)
    caption = f"{', '.join(counts)}. Surest: {top_text or 'nothing'}"
    return Tile(jpeg=jpeg(pair), group=group, caption=caption, name=scene.name)


def _draw_truth(image: Image.Image, scene: Scene, outcome: Outcome, scale: float) -> Image.Image:
    """Return the image with its objects.

    Missed objects are red, `aside` ones gray.
    """
    canvas = image.copy()
    pen = ImageDraw.Draw(canvas, "RGBA")
    for j, box in enumerate(scene.boxes):
        kind = "missed" if j in outcome.missed else "false" if scene.aside[j] else "found"
        color = COLORS[kind]
        for outline in scene.polygons[j] if scene.polygons else ():
            if len(outline) >= 6:
                pen.polygon([float(v) * scale for v in outline], fill=f"{color}60")
        pen.rectangle([float(v) * scale for v in box], outline=color, width=2)
        if scene.keypoints is not None:
            _draw_points(pen, scene.keypoints[j][scene.keypoints[j][:, 2] > 0], scale, color)
    return canvas


def _draw_detections(
    image: Image.Image, scene: Scene, detections: Detections, outcome: Outcome, scale: float
) -> Image.Image:
    """Return the image with the shown detections, colored by outcome."""
    from pycocotools import mask as coco_mask

    canvas = image.copy()
    for mask, kind in zip(detections.masks or (), outcome.kinds, strict=False):
        size = [scene.height, scene.width]
        pixels = coco_mask.decode({"size": size, "counts": mask.encode()})
        # an opacity of 96 / 255, so that the object remains visible
        shape = Image.fromarray(pixels * 96).resize(image.size, Image.Resampling.NEAREST)
        canvas.paste(Image.new("RGB", image.size, COLORS[kind]), mask=shape)
    pen = ImageDraw.Draw(canvas, "RGBA")
    for k, (box, kind) in enumerate(zip(detections.boxes.tolist(), outcome.kinds, strict=True)):
        pen.rectangle([v * scale for v in box], outline=COLORS[kind], width=2)
        if detections.keypoints is not None:
            _draw_points(pen, detections.keypoints[k].double().numpy(), scale, COLORS[kind])
    return canvas


def _draw_points(
    pen: ImageDraw.ImageDraw, points: NDArray[np.float64], scale: float, color: str
) -> None:
    for x, y in points[:, :2] * scale:
        pen.ellipse([x - 2, y - 2, x + 2, y + 2], fill=color, outline="black")


OPACITY = 0.6
GOOD_ACCURACY = 0.9
"""Pixel accuracy (a fraction) from which an image counts as well segmented."""


def segments(split: Segmented, predicted: Callable[[int], Mask]) -> list[Tile]:
    """Return tiles with true and predicted masks, the best first.

    predicted: function from an image's index to the class of each pixel (H, W).
    """
    scored_tiles = []
    for i in select_images([split.name(i) for i in range(len(split))]):
        truth, prediction = split.mask(i), predicted(i)
        counted = truth != IGNORED
        accuracy = float((truth == prediction)[counted].mean()) if counted.any() else 0.0
        image = thumbnail(split.source.decode(i))
        pair = side_by_side(_overlay(image, truth), _overlay(image, prediction))
        tile = Tile(
            jpeg=jpeg(pair),
            group="mostly right" if accuracy >= GOOD_ACCURACY else "partly wrong",
            caption=f"{100 * accuracy:.0f} % of the pixels right; "
            f"truth {_class_list(split, truth)}; "
            f"predicted {_class_list(split, prediction)}",
            name=split.name(i),
        )
        scored_tiles.append((accuracy, tile))
    return [tile for _, tile in sorted(scored_tiles, key=lambda pair: -pair[0])]


def _class_list(split: Segmented, mask: Mask) -> str:
    """Return the names of the classes in a mask, without the background."""
    present = [int(c) for c in np.unique(mask) if c not in (0, IGNORED)]
    return ", ".join(split.class_names[c] for c in present) or "nothing"


def _overlay(image: Image.Image, mask: Mask) -> Image.Image:
    """Return the image with classes in their colors; background is unchanged."""
    # nearest, since an interpolated class number would be an unrelated class
    small = Image.fromarray(mask).resize(image.size, Image.Resampling.NEAREST)
    classes = np.asarray(small)
    colors = np.frombuffer(voc_palette(), dtype=np.uint8).reshape(-1, 3)[classes]
    opacity = (classes != 0)[..., None] * OPACITY
    blended = np.asarray(image) * (1 - opacity) + colors * opacity
    return Image.fromarray(blended.astype(np.uint8))
