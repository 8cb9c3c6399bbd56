"""Choice of the engine that builds a detector."""

from typing import Literal

from transfer.detection.detectron2_engine import HOW_TO_INSTALL, is_available
from transfer.detection.detectron2_engine import build_detector as build_on_detectron2
from transfer.detection.recipe import Recipe
from transfer.detection.sample import Detector
from transfer.detection.torchvision_engine import build_detector as build_on_torchvision
from transfer.finetuning.norms import Norm
from transfer.finetuning.options import EngineChoice

__all__ = ["HOW_TO_INSTALL", "EngineName", "build_detector", "engine_for", "is_available"]

EngineName = Literal["detectron2", "torchvision"]


def engine_for(choice: EngineChoice) -> EngineName:
    """Return the engine that will run; ValueError if detectron2 is chosen but not installed."""
    if choice == "detectron2" and not is_available():
        raise ValueError(
            f"--engine detectron2, but detectron2 cannot be imported here. {HOW_TO_INSTALL}"
        )
    if choice == "auto":
        return "detectron2" if is_available() else "torchvision"
    return choice


def build_detector(
    engine: EngineName, recipe: Recipe, *, arch: str, num_classes: int, norm: Norm
) -> Detector:
    """Return a detector with new layers drawn from torch's generator and no backbone loaded."""
    build = build_on_detectron2 if engine == "detectron2" else build_on_torchvision
    return build(recipe, arch=arch, num_classes=num_classes, norm=norm)
