"""Style banks: which copies belong to which image, and what is refused."""

from pathlib import Path

import pytest
from PIL import Image

from pretrain.data.images import DataError, TrainingImages, find_images, find_styles


def fill(bank: Path, images: TrainingImages, *styles: str) -> None:
    """A plain copy of every image in each style."""
    for style in styles:
        for file in images.files:
            copy = bank / style / file.relative_to(images.folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 4)).save(copy)


def test_styles_are_the_sorted_folders_and_copies_keep_the_name(
    image_folder: Path, tmp_path: Path
) -> None:
    images, bank = find_images(image_folder), tmp_path / "bank"
    fill(bank, images, "seurat", "munch")
    (bank / "README").write_text("made by AdaIN")
    styles = find_styles(bank, images)
    assert styles.names == ("munch", "seurat")
    copy = styles.styled_path(image_folder / "cold" / "3.png", 1)
    assert copy == bank / "seurat" / "cold" / "3.png"


def test_missing_copies_are_counted_and_the_first_is_named(
    image_folder: Path, tmp_path: Path
) -> None:
    images, bank = find_images(image_folder), tmp_path / "bank"
    fill(bank, images, "munch", "seurat")
    for name in ("cold/7.png", "warm/1.png"):
        (bank / "seurat" / name).unlink()
    message = r"2 of 40 styled copies are missing, first seurat/cold/7\.png"
    with pytest.raises(DataError, match=message):
        find_styles(bank, images)
