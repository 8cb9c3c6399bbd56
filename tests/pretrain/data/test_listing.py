"""Kept listings are found again as long as they are true."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pretrain.data.listing
from pretrain.data.images import DataError, TrainingImages
from pretrain.data.listing import cache_folder, find_images, list_images


@pytest.fixture
def walks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders that were walked through, with an empty cache."""
    walked: list[Path] = []

    def count(folder: Path) -> TrainingImages:
        walked.append(folder)
        return list_images(folder)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(pretrain.data.listing, "list_images", count)
    return walked


@pytest.fixture
def old(image_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of images that nobody has changed for a while."""
    monkeypatch.setattr(pretrain.data.listing, "UNSURE_S", 0.05)
    wait()
    return image_folder


def wait() -> None:
    """Wait until a change may be listed; Linux counts in 10 ms at most."""
    time.sleep(0.06)


def assert_same(found: TrainingImages, expected: TrainingImages) -> None:
    assert all(
        np.array_equal(values, vars(expected)[name])
        for name, values in vars(found).items()
        if isinstance(values, np.ndarray)
    )
    assert (found.repeated, found.states) == (expected.repeated, expected.states)


def test_a_listing_is_found_again_by_any_path_to_the_folder(
    old: Path, tmp_path: Path, walks: list[Path]
) -> None:
    (tmp_path / "link").symlink_to(old)
    expected = list_images(old)
    assert_same(find_images(old), expected)
    assert_same(find_images(old), expected)
    assert walks == [old]
    assert find_images(tmp_path / "link").path(0) == tmp_path / "link" / "cold" / "0.png"
    assert walks == [old]


@pytest.mark.parametrize("change", ["added", "unpacked", "removed", "renamed", "folder", "link"])
def test_a_changed_folder_is_listed_again(
    old: Path, tmp_path: Path, walks: list[Path], change: str
) -> None:
    find_images(old)
    first = old / "warm" / "0.png"
    match change:
        case "added":
            Image.new("L", (9, 5)).save(old / "warm" / "new.png")
        case "unpacked":
            time_ns = first.parent.stat().st_mtime_ns
            Image.new("L", (9, 5)).save(old / "warm" / "new.png")
            os.utime(first.parent, ns=(time_ns, time_ns))  # as tar and cp -p do
        case "removed":
            first.unlink()
        case "renamed":
            first.rename(old / "warm" / "zero.png")
        case "folder":
            (old / "between").mkdir()
        case "link":
            (old / "again").symlink_to(tmp_path)
    assert_same(find_images(old), list_images(old))
    assert len(walks) == 2


def test_a_folder_behind_a_link_that_changes_is_listed_again(
    old: Path, tmp_path: Path, walks: list[Path]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "a").symlink_to(old / "cold")
    wait()
    find_images(data)
    find_images(data)
    assert len(walks) == 1
    Image.new("L", (9, 5)).save(old / "cold" / "new.png")
    assert len(find_images(data)) == 11


def test_a_folder_that_has_just_changed_is_not_kept(image_folder: Path, walks: list[Path]) -> None:
    """The next change may fall into the same tick of the clock."""
    for _ in range(2):
        find_images(image_folder)
    assert len(walks) == 2


def test_unreadable_images_are_tried_again(old: Path, walks: list[Path]) -> None:
    broken = old / "warm" / "broken.png"
    broken.write_bytes(b"not a picture")
    wait()
    for _ in range(2):
        with pytest.raises(DataError, match=r"1 of 21 images are unreadable \(warm/broken.png\)"):
            find_images(old)
        assert len(find_images(old, tolerated=1)) == 20
    assert len(walks) == 1
    Image.new("L", (9, 5)).save(broken)  # the folder's time stays
    assert len(find_images(old)) == 21


@pytest.mark.parametrize("damage", ["cut", "zeros", "empty", "text"])
def test_a_damaged_listing_is_made_again(old: Path, walks: list[Path], damage: str) -> None:
    expected = find_images(old)
    (path,) = cache_folder().glob("*.npz")
    content = path.read_bytes()
    half = len(content) // 2
    damaged = {
        "cut": content[:half],
        "zeros": content[:half] + bytes(len(content) - half),
        "empty": b"",
        "text": b"no listing",
    }
    path.write_bytes(damaged[damage])
    assert_same(find_images(old), expected)
    assert len(walks) == 2
