"""Choose the engine that builds a detector."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from transfer.detection.recipe import DetectorRecipe
from transfer.finetuning.options import EngineChoice

if TYPE_CHECKING:
    from transfer.detection.detector import Detector
    from transfer.finetuning.norms import Norm

EngineName = Literal["detectron2", "torchvision"]

SOURCE = (
    "git+https://github.com/facebookresearch/detectron2.git"
    "@02b5c4e295e990042a714712c21dc79b731e8833"
)
"""Tested commit of detectron2; no release builds today."""
HOW_TO_INSTALL = (
    f"To install it: make detectron2, or pip install --no-build-isolation '{SOURCE}' "
    "(both need a C++ compiler; see docs/howto/detectron2.md)"
)


@cache
def is_available() -> bool:
    """Return whether detectron2 can be imported."""
    if find_spec("detectron2") is None:
        return False
    from transfer.detection.detectron2_engine import silence_known_warnings

    try:
        with silence_known_warnings():
            import detectron2.engine  # noqa: F401
    except ImportError:
        return False
    return True


def engine_for(choice: EngineChoice) -> EngineName:
    """Return the engine to use.

    Raises ValueError if the user chose detectron2, but it is not installed.
    """
    if choice == "detectron2" and not is_available():
        raise ValueError(
            f"--engine detectron2: detectron2 cannot be imported. {HOW_TO_INSTALL}. To train the "
            "same detector without it: --engine torchvision"
        )
    if choice == "auto":
        return "detectron2" if is_available() else "torchvision"
    return choice


def build_detector(
    engine: EngineName, recipe: DetectorRecipe, *, arch: str, num_classes: int, norm: Norm
) -> Detector:
    """Return a detector with random weights from torch's generator."""
    if engine == "detectron2":
        from transfer.detection import detectron2_engine

        return detectron2_engine.build_detector(
            recipe, arch=arch, num_classes=num_classes, norm=norm
        )
    from transfer.detection.torchvision_engine.network import RCNN

    return RCNN(recipe, arch=arch, num_classes=num_classes, norm=norm)
