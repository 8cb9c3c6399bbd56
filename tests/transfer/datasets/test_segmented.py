"""Broken masks are named before a training, and a mask is the same after it was in a file."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from transfer.datasets.catalog import open_segmented
from transfer.datasets.check import check, require
from transfer.datasets.expected import DataError
from transfer.datasets.segmented import IGNORED, Segmented, write_mask
from transfer.datasets.splits import without


@pytest.fixture
def data(copy_of: Callable[[str], Path]) -> Path:
    return copy_of("voc12")


def mask_file(split: Segmented, i: int) -> Path:
    return split.masks.folder / split.masks.name(i)


def test_everything_wrong_with_masks_is_named(data: Path) -> None:
    split = open_segmented("voc12_seg", data, "test")
    mask = split.mask(3)
    mask[0, :8] = [21, 30, 31, 32, 33, 34, 254, IGNORED]
    write_mask(mask_file(split, 3), mask)
    write_mask(mask_file(split, 2), split.mask(2)[:60])
    Image.new("RGB", (96, 64)).save(mask_file(split, 0))
    mask_file(split, 1).write_bytes(mask_file(split, 1).read_bytes()[:60])
    found = check("voc12_seg", data, decode=False).problems
    for i, why in enumerate(
        (
            "colors (RGB) where class ids are expected",
            "cannot be decoded",
            "96 x 60 px, its image has 96 x 64",
            "unknown ids 21, 30, 31, 32, 33, 34, 254; expected 0 to 20, and 255 for pixels that",
        )
    ):
        assert found[i].startswith(f"{split.name(i)}: its mask {split.masks.name(i)}: {why}")
    assert len(found) == 4


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


def test_another_mask_is_another_fingerprint_and_a_replaced_one_another_state(data: Path) -> None:
    split = open_segmented("voc12_seg", data, "test")
    states, fingerprint = [files.state() for files in split.files], split.fingerprint
    file, mask = mask_file(split, 0), split.mask(0)
    times, content = file.stat(), file.read_bytes()
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # as tar and cp -p do
    now = [files.state() for files in split.files]
    assert [a == b for a, b in zip(now, states, strict=True)] == [True, False]
    assert open_segmented("voc12_seg", data, "test").fingerprint == fingerprint
    mask[0, 0] = 5
    write_mask(file, mask)
    assert open_segmented("voc12_seg", data, "test").fingerprint != fingerprint
