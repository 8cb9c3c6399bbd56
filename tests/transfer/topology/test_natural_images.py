"""Photographs are found wherever they lie, and nothing else is taken for one."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from transfer.topology.statistics import natural_images


def write(path: Path, side_px: int, gray: int = 128) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((side_px, side_px + 8, 3), gray, np.uint8)).save(path)


def test_photographs_of_all_folders_are_taken_in_turn(tmp_path: Path) -> None:
    for folder in range(6):
        for number in range(10):
            write(tmp_path / f"set/{folder}/{number}.jpg", 40, gray=40 * folder)
    images = natural_images(tmp_path, count=6, size_px=32)
    assert images.shape == (6, 3, 32, 32)
    assert len({round(float(image.mean()), 2) for image in images}) >= 5
    assert torch.equal(images, natural_images(tmp_path, count=6, size_px=32))


def test_sets_behind_links_are_looked_into_once(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere/set/0.jpg", 40)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/loop").symlink_to(tmp_path / "data")
    assert len(natural_images(tmp_path / "data", count=6, size_px=32)) == 1


def test_masks_small_and_broken_images_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "mask.png", 40)
    write(tmp_path / "small.jpg", 31)
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8 no image")
    write(tmp_path / "good.JPEG", 40)
    assert len(natural_images(tmp_path, count=4, size_px=32)) == 1
