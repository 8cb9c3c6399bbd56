"""Impossible detectors are refused before one is built."""

from dataclasses import replace

import pytest

from transfer.detection.recipe import VOC_C4
from transfer.detection.torchvision_engine import build_detector


def test_an_impossible_detector_is_refused() -> None:
    with pytest.raises(ValueError, match="boxes only"):
        build_detector(replace(VOC_C4, finds="masks"), arch="resnet18", num_classes=1, norm="BN")
