"""Images that were changed during a run: file by file, or folder by folder in large sets."""

import os
import time
from pathlib import Path

import pytest

import pretrain.data.last_writes
from pretrain.data.images import find_images
from pretrain.data.last_writes import LastWrites

TICK_S = 0.05
"""More than the clock of a file system needs to go on; Linux counts in 10 ms at most."""


def test_overwritten_and_deleted_images_are_named(image_folder: Path) -> None:
    before = LastWrites.now(find_images(image_folder))
    assert before.changed() == []
    time.sleep(TICK_S)
    overwritten = image_folder / "warm" / "3.png"
    time_ns = overwritten.stat().st_mtime_ns
    overwritten.write_bytes((image_folder / "warm" / "4.png").read_bytes())
    os.utime(overwritten, ns=(time_ns, time_ns))  # as tar and cp -p do
    (image_folder / "cold" / "1.png").unlink()
    assert before.changed() == ["cold/1.png", "warm/3.png"]


def test_of_a_large_set_the_folders_of_replaced_images_are_named(
    image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrain.data.last_writes, "FILE_BY_FILE", 10)
    before = LastWrites.now(find_images(image_folder))
    assert before.changed() == []
    time.sleep(TICK_S)
    (image_folder / "warm" / "3.png").replace(image_folder / "warm" / "4.png")
    assert before.changed() == ["warm/"]
