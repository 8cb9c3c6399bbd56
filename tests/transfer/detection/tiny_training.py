"""Small scenes in files, and a tiny detector for engine-independent tests."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, dropout

from tests.transfer.detection.scenes import scene
from transfer.datasets.scenes import Scenes
from transfer.detection.detector import Detector, Sample
from transfer.detection.recipe import COCO_FPN, DetectorRecipe

SIZES = ((60, 40), (40, 60), (64, 48), (50, 50), (36, 48), (70, 30), (30, 44))
"""Widths and heights; three are wide."""
RECIPE = replace(
    COCO_FPN.tiny(), train_short_px=(40, 48), iterations=9, milestones=(7,), learning_rate=0.05
)


def tiny_scenes(folder: Path, *, coco: bool = True) -> Scenes:
    """Write seven noise images with two objects and an ignored one.

    The first object's class shows in the image's brightness.
    """
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    scenes = []
    for number, (width, height) in enumerate(SIZES):
        name = f"{number}.jpg"
        pixels = random.integers(0, 256, (height // 2, width // 2, 3), dtype=np.uint8)
        Image.fromarray(pixels // (1 + number % 3)).resize((width, height)).save(folder / name)
        # some reach beyond the image
        corners = np.sort(random.uniform(-0.1, 1.1, (3, 2, 2)), axis=1) * [width, height]
        boxes = corners.reshape(3, 4).round(2)
        positions = random.integers(-3, (width + 3, height + 3), (3, 17, 2))
        labels = random.integers(0, 3, (3, 17, 1))
        shapes = {
            "aside": np.array([False, False, True]),
            "polygons": tuple((box[[0, 1, 2, 1, 2, 3]], box[[0, 1, 0, 3, 2, 3]]) for box in boxes),
            "keypoints": np.concatenate([positions * (labels > 0), labels], axis=2).astype(float),
        }
        scenes.append(scene(name, number, width, height, boxes, [number % 3, 1, 2], **shapes))
    return Scenes(folder, scenes, ("a", "b", "c"), category_ids=(1, 5, 7) if coco else ())


class TinyDetector(Detector):
    """Sees the top left corner of each image.

    A detector as far as a training needs it.
    """

    rpn_prefix = "rpn."

    def __init__(
        self,
        *,
        norm: type[nn.Module] = nn.BatchNorm2d,
        drop: float = 0.5,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv = nn.Conv2d(3, 4, 3, stride=2)
        self.norm = norm(4)
        self.rpn = nn.Conv2d(4, 1, 1)
        self.head = nn.Linear(4, 3)
        self.drop = drop
        self.to(dtype)

    def forward(self, samples: Sequence[Sample]) -> dict[str, Tensor]:
        """Means over the images."""
        pixels = torch.stack([sample.image[:, :24, :24] for sample in samples]) / 255
        pixels = pixels.to(self.conv.weight.dtype)
        maps = self.norm(self.conv(pixels)).relu()
        objects = self.rpn(maps).mean(dim=(1, 2, 3))
        several = pixels.new_tensor([float(len(sample.boxes) > 1) for sample in samples])
        scores = self.head(dropout(maps.mean(dim=(2, 3)), self.drop, self.training))
        expected = torch.stack([sample.classes[0] for sample in samples])
        return {
            "loss_rpn_cls": binary_cross_entropy_with_logits(objects, several),
            "loss_cls": cross_entropy(scores, expected),
        }

    def _unused(self, _: Any) -> Any:
        raise NotImplementedError

    find = _unused  # type: ignore[assignment]
    feature_maps = _unused  # type: ignore[assignment]
    load_backbone = _unused  # type: ignore[assignment]


def tiny_recipe(**changes: object) -> DetectorRecipe:
    """Nine iterations of four images."""
    return replace(RECIPE, **changes)  # type: ignore[arg-type]
