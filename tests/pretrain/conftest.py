"""Small image folders."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image


@pytest.fixture(autouse=True)
def same_numbers_in_any_order() -> None:
    """Seed torch, so that random values do not depend on earlier tests."""
    torch.manual_seed(20)


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    """Two classes of ten 20 x 24 px images, colored by class.

    Noise is added.
    """
    folder = tmp_path / "images"
    generator = np.random.default_rng(0)
    for name, color in (("cold", (40, 80, 200)), ("warm", (220, 120, 30))):
        (folder / name).mkdir(parents=True)
        for number in range(10):
            noise = generator.normal(0, 30, (20, 24, 3))
            pixels = (np.array(color) + noise).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture
def style_bank(image_folder: Path) -> Path:
    """Copies of these images in two styles, 12 x 10 px.

    munch with all levels: 10; seurat: 20.
    """
    bank = image_folder.parent / "paintings"
    for style, level in (("seurat", 20), ("munch", 10)):
        for file in image_folder.rglob("*.png"):
            copy = bank / style / file.relative_to(image_folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (12, 10), (level, level, level)).save(copy)
    return bank
