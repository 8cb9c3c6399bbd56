"""Images that were written during a run: file by file, or folder by folder in large sets."""

import os
from pathlib import Path

import pytest

import pretrain.data.last_writes
from pretrain.data.images import find_images
from pretrain.data.last_writes import LastWrites


def test_overwritten_and_deleted_images_are_named(image_folder: Path) -> None:
    before = LastWrites.now(find_images(image_folder))
    assert before.changed() == []
    os.utime(image_folder / "warm" / "3.png", (1e9, 1e9))
    (image_folder / "cold" / "1.png").unlink()
    assert before.changed() == ["cold/1.png", "warm/3.png"]


def test_of_a_large_set_the_folders_of_replaced_images_are_named(
    image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrain.data.last_writes, "FILE_BY_FILE", 10)
    for folder in image_folder.iterdir():
        os.utime(folder, (1e9, 1e9))
    before = LastWrites.now(find_images(image_folder))
    assert before.changed() == []
    (image_folder / "warm" / "3.png").replace(image_folder / "warm" / "4.png")
    assert before.changed() == ["warm/"]
