"""Broken masks are named before a training, and a mask is the same after it was in a file."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from transfer.datasets.catalog import open_segmented
from transfer.datasets.check import check, render, require
from transfer.datasets.expected import DataError
from transfer.datasets.segmented import IGNORED, Segmented, write_mask
from transfer.datasets.splits import without

COLORS = {0: (0, 0, 0), 1: (128, 0, 0), 2: (0, 128, 0), 15: (192, 128, 128), 255: (224, 224, 192)}
"""Colors of background, aeroplane, bicycle, person and outlines in VOC's development kit."""


@pytest.fixture
def data(copy_of: Callable[[str], Path]) -> Path:
    return copy_of("voc12")


def mask_file(split: Segmented, i: int) -> Path:
    return split.masks.folder / split.masks.name(i)


def faults(data: Path) -> tuple[str, ...]:
    return check("voc12_seg", data, decode=False).problems


def test_unknown_ids_are_named(data: Path) -> None:
    split = open_segmented("voc12_seg", data, "test")
    mask = split.mask(3)
    mask[0, :8] = [21, 30, 31, 32, 33, 34, 254, IGNORED]
    write_mask(mask_file(split, 3), mask)
    assert faults(data) == (
        f"{split.name(3)}: its mask {split.masks.name(3)}: unknown ids 21, 30, 31, 32, 33 and more;"
        " expected 0 to 20, and 255 for pixels that do not count",
    )


def test_a_size_that_is_not_the_images_is_named(data: Path) -> None:
    split = open_segmented("voc12_seg", data, "trainval")
    write_mask(mask_file(split, 0), split.mask(0)[:60])
    assert faults(data) == (
        f"{split.name(0)}: its mask {split.masks.name(0)}: 96 x 60 px, its image has 96 x 64",
    )


def test_colors_and_torn_files_are_no_masks(data: Path) -> None:
    split = open_segmented("voc12_seg", data, "test")
    Image.new("RGB", (96, 64)).save(mask_file(split, 0))
    mask_file(split, 1).write_bytes(mask_file(split, 1).read_bytes()[:60])
    colors, torn = faults(data)
    assert "colors (RGB) where class ids are expected" in colors
    assert "cannot be decoded" in torn


def test_a_run_refuses_broken_masks_or_leaves_them_out(data: Path) -> None:
    split = open_segmented("voc12_seg", data, "trainval")
    for i in (4, 7):
        mask_file(split, i).unlink()
    with pytest.raises(DataError, match="2 images are missing") as error:
        require("voc12_seg", data, tolerated=1)
    assert split.masks.name(4) in str(error.value)
    report = require("voc12_seg", data, tolerated=2)
    rest = without(split, report.unreadable)
    assert len(rest) == len(split) - 2
    assert not any(rest.mask_check[0])


def test_another_mask_is_another_fingerprint(data: Path) -> None:
    split = open_segmented("voc12_seg", data, "test")
    before, mask = split.fingerprint, split.mask(0)
    mask[0, 0] = 5
    write_mask(mask_file(split, 0), mask)
    assert open_segmented("voc12_seg", data, "test").fingerprint != before


def test_a_mask_that_was_replaced_and_put_back_changes_the_state_of_the_files(data: Path) -> None:
    split = open_segmented("voc12_seg", data, "test")
    before = [files.state() for files in split.files]
    file = mask_file(split, 0)
    times, content = file.stat(), file.read_bytes()
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # as tar and cp -p do
    assert [files.state() == b for files, b in zip(split.files, before, strict=True)] == [
        True,
        False,
    ]


def test_an_excerpt_may_lack_classes(data: Path) -> None:
    marks = data / "small-data.json"
    marks.write_text('{"voc12_seg": {"classes": 21, "counts": {"trainval": 100, "test": 3}}}')
    listing = data / "VOCdevkit/VOC2012/ImageSets/Segmentation/val.txt"
    listing.write_text("\n".join(listing.read_text().split()[:3]))
    report = check("voc12_seg", data, decode=True)
    assert report.ok, report.problems
    assert "test: no object of" in render([report])
