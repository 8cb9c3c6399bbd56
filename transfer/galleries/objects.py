"""Predictions beside the truth: boxes, masks, keypoints and classes of pixels, on chosen images."""

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
from transfer.galleries.tile import Tile, chosen_images, jpeg, side_by_side, thumbnail

SURE = 0.3
"""Confidence from which a detection is shown; the most confident one is shown anyway."""
MOST_SHOWN = 12
OVERLAP = 0.5
"""IoU from which a detection lies on an object."""
COLORS = {"found": "#00d48a", "confused": "#ffb000", "false": "#c0c6cc", "missed": "#ff4d6d"}
ORDER = ("found", "missed", "confused", "nothing there")


@dataclass(frozen=True)
class Outcome:
    """Kinds of the shown detections, and the objects that none of them found."""

    kinds: tuple[str, ...]
    """found, confused or false, for each shown detection."""
    missed: tuple[int, ...]
    """Places of objects on which no shown detection of their class lies."""


def objects(scenes: Scenes, detections: Sequence[Detections]) -> list[Tile]:
    """Return truth and detections of the chosen images, ordered by what became of the objects."""
    chosen = chosen_images([scenes.name(i) for i in range(len(scenes))])
    tiles = [_tile(scenes, i, sure_ones(detections[i])) for i in chosen]
    return sorted(tiles, key=lambda tile: ORDER.index(tile.group))


def sure_ones(found: Detections) -> Detections:
    """Return the detections that are shown, the most confident first."""
    sure = int((found.scores >= SURE).sum())
    number = min(max(sure, 1), MOST_SHOWN, len(found.scores))
    return replace(
        found,
        boxes=found.boxes[:number],
        scores=found.scores[:number],
        classes=found.classes[:number],
        masks=None if found.masks is None else found.masks[:number],
        keypoints=None if found.keypoints is None else found.keypoints[:number],
    )


def match(scene: Scene, found: Detections) -> Outcome:
    """Return the outcome; each object is found once, by the most confident detection on it.

    Objects set aside, crowds and difficult ones, are neither missed nor confused.
    """
    overlaps = box_iou(found.boxes.double(), torch.from_numpy(scene.boxes)).tolist()
    left = set(range(len(scene.boxes)))
    kinds = []
    for row, of_class in zip(overlaps, found.classes.tolist(), strict=True):
        on = sorted((j for j in left if row[j] >= OVERLAP), key=lambda j: -row[j])
        own = [j for j in on if scene.classes[j] == of_class]
        left -= set(own[:1])
        others = [j for j in on if not scene.aside[j]]
        kinds.append("found" if own else "confused" if others else "false")
    missed = tuple(sorted(j for j in left if not scene.aside[j]))
    return Outcome(tuple(kinds), missed)


def _tile(scenes: Scenes, i: int, found: Detections) -> Tile:
    scene, image = scenes.scene(i), scenes.source.decode(i)
    outcome = match(scene, found)
    small = thumbnail(image)
    scale = small.width / image.width
    truth = _draw_truth(small, scene, outcome, scale)
    pair = side_by_side(truth, _draw_found(small, scene, found, outcome, scale))
    names, kinds = scenes.class_names, outcome.kinds
    num_objects = int((~scene.aside).sum())
    words = [f"{kinds.count('found')} of {num_objects} objects found"]
    group = "nothing there" if not num_objects else "missed" if outcome.missed else "found"
    if "confused" in kinds:
        group = "confused" if num_objects else group
        words.append(f"{kinds.count('confused')} taken for another class")
    if "false" in kinds:
        words.append(f"{kinds.count('false')} where there is none")
    sure = zip(found.classes[:3].tolist(), found.scores[:3].tolist(), strict=True)
    surest = ", ".join(f"{names[c]} {score:.2f}" for c, score in sure)
    caption = f"{', '.join(words)}. Surest: {surest or 'nothing'}"
    return Tile(jpeg=jpeg(pair), group=group, caption=caption, name=scene.name)


def _draw_truth(image: Image.Image, scene: Scene, outcome: Outcome, scale: float) -> Image.Image:
    """Return the image with the objects; missed ones are red, those set aside are gray."""
    drawn = image.copy()
    pen = ImageDraw.Draw(drawn, "RGBA")
    for j, box in enumerate(scene.boxes):
        aside = "false" if scene.aside[j] else "found"
        color = COLORS["missed" if j in outcome.missed else aside]
        for outline in scene.polygons[j] if scene.polygons else ():
            if len(outline) >= 6:
                pen.polygon([float(v) * scale for v in outline], fill=f"{color}60")
        pen.rectangle([float(v) * scale for v in box], outline=color, width=2)
        if scene.keypoints is not None:
            _draw_points(pen, scene.keypoints[j][scene.keypoints[j][:, 2] > 0], scale, color)
    return drawn


def _draw_found(
    image: Image.Image, scene: Scene, found: Detections, outcome: Outcome, scale: float
) -> Image.Image:
    """Return the image with the shown detections in the colors of what they are."""
    from pycocotools import mask as coco_mask

    drawn = image.copy()
    for mask, kind in zip(found.masks or (), outcome.kinds, strict=False):
        size = [scene.height, scene.width]
        pixels = coco_mask.decode({"size": size, "counts": mask.encode()})
        # 96 of 255 is the opacity, through which the object is still seen
        shape = Image.fromarray(pixels * 96).resize(image.size, Image.Resampling.NEAREST)
        drawn.paste(Image.new("RGB", image.size, COLORS[kind]), mask=shape)
    pen = ImageDraw.Draw(drawn, "RGBA")
    for k, (box, kind) in enumerate(zip(found.boxes.tolist(), outcome.kinds, strict=True)):
        pen.rectangle([v * scale for v in box], outline=COLORS[kind], width=2)
        if found.keypoints is not None:
            _draw_points(pen, found.keypoints[k].double().numpy(), scale, COLORS[kind])
    return drawn


def _draw_points(
    pen: ImageDraw.ImageDraw, points: NDArray[np.float64], scale: float, color: str
) -> None:
    for x, y in points[:, :2] * scale:
        pen.ellipse([x - 2, y - 2, x + 2, y + 2], fill=color, outline="black")


OPACITY = 0.6
GOOD = 0.9
"""Share of right pixels from which an image counts as well segmented."""


def segments(split: Segmented, predicted: Callable[[int], Mask]) -> list[Tile]:
    """Return truth and prediction of a fixed handful of images, the best first.

    predicted: function of an image's place that returns the class of each pixel (H, W).
    """
    rated = []
    for i in chosen_images([split.name(i) for i in range(len(split))]):
        truth, found = split.mask(i), predicted(i)
        counted = truth != IGNORED
        right = float((truth == found)[counted].mean()) if counted.any() else 0.0
        image = thumbnail(split.source.decode(i))
        pair = side_by_side(_overlay(image, truth), _overlay(image, found))
        tile = Tile(
            jpeg=jpeg(pair),
            group="mostly right" if right >= GOOD else "partly wrong",
            caption=f"{100 * right:.0f} % of the pixels right; truth {_words(split, truth)}; "
            f"predicted {_words(split, found)}",
            name=split.name(i),
        )
        rated.append((right, tile))
    return [tile for _, tile in sorted(rated, key=lambda pair: -pair[0])]


def _words(split: Segmented, mask: Mask) -> str:
    """Return the names of the classes in a mask but the background."""
    present = [int(c) for c in np.unique(mask) if c not in (0, IGNORED)]
    return ", ".join(split.class_names[c] for c in present) or "nothing"


def _overlay(image: Image.Image, mask: Mask) -> Image.Image:
    """Return the image with the classes in their colors; background stays as it is."""
    # class numbers have no order, so a mean of two would be an unrelated class
    small = Image.fromarray(mask).resize(image.size, Image.Resampling.NEAREST)
    classes = np.asarray(small)
    colors = np.frombuffer(voc_palette(), dtype=np.uint8).reshape(-1, 3)[classes]
    shown = (classes != 0)[..., None] * OPACITY
    blended = np.asarray(image) * (1 - shown) + colors * shown
    return Image.fromarray(blended.astype(np.uint8))
