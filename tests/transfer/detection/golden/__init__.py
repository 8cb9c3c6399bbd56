"""detectron2's answers in float64, stored: one file per detector.

`python -m tests.transfer.detection.golden` writes them again, where detectron2 is installed.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from tests.transfer.detection.fixed_detector import Answer, lean
from tests.transfer.detection.parity import CASES
from transfer.detection.detector import ResizedDetections

GOLDEN = {name: ("resnet18", lean(recipe)) for name, recipe in CASES.items()} | {
    "fpn boxes resnet50": ("resnet50", CASES["fpn boxes"])
}
"""Architecture and recipe.

resnet18 is fast enough for every run of the tests.
"""

SHOWN = 20
"""Detections of an image, the best."""


def path_of(name: str) -> Path:
    """Return the file of an answer."""
    return Path(__file__).parent / f"{name.replace(' ', '_')}.json"


def summary(answer: Answer, gradients: Mapping[str, Tensor]) -> dict[str, Any]:
    """Losses, the norm of the gradient of each part, and detections.

    Plain numbers.

    gradients: under the torchvision engine's names. Of a mask its mean, of keypoints the mean over
    all 17 is kept.
    """
    squares: dict[str, float] = defaultdict(float)
    for name, values in gradients.items():
        squares[part_of(name)] += values.double().square().sum().item()
    return {
        "losses": {name: loss.item() for name, loss in answer.losses.items()},
        "gradient_norms": {part: value**0.5 for part, value in sorted(squares.items())},
        "found": [_best(result) for result in answer.found],
    }


def _best(found: ResizedDetections) -> dict[str, Any]:
    masks, keypoints = found.masks, found.keypoints
    return {
        "count": len(found.boxes),
        "boxes": found.boxes[:SHOWN].tolist(),
        "scores": found.scores[:SHOWN].tolist(),
        "classes": found.classes[:SHOWN].tolist(),
        "masks": [] if masks is None else masks[:SHOWN].mean(dim=(1, 2)).tolist(),
        "keypoints": [] if keypoints is None else keypoints[:SHOWN].mean(dim=1).tolist(),
    }


def part_of(parameter: str) -> str:
    """backbone.layer1, pyramid, rpn, box_predictor, ..."""
    first, second, *_ = parameter.split(".")
    return f"{first}.{second}" if first == "backbone" else first
