"""Kept images have the pixels of their files, which are decoded once."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from transfer.datasets import kept_images
from transfer.datasets.catalog import open_split
from transfer.datasets.images import DataError, ImageFiles, Images
from transfer.datasets.kept_images import KeptFiles, keep_decoded, keep_if_read_often

PLENTY = 1e9


@pytest.fixture
def images(small_data: Path) -> Images:
    return open_split("cars", small_data, "train")


@pytest.mark.parametrize("num_workers", [0, 2])
def test_pixels_labels_and_fingerprint_are_those_of_the_files(
    num_workers: int, images: Images
) -> None:
    kept = keep_decoded(images, PLENTY, num_workers)
    assert isinstance(kept.source, KeptFiles)
    assert kept.fingerprint == images.fingerprint
    for i in range(len(images)):
        (one, label), (other, same_label) = images[i], kept[i]
        assert np.array_equal(np.asarray(one), np.asarray(other))
        assert label == same_label


def test_a_part_of_them_reads_no_file(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = keep_decoded(images, PLENTY, 0)
    expected = [np.asarray(images[i][0]) for i in (5, 2, 2)]
    monkeypatch.setattr(ImageFiles, "decode", lambda *_: pytest.fail("decoded again"))
    part = kept.subset([5, 2, 2])
    assert [part.name(i) for i in range(3)] == [images.name(i) for i in (5, 2, 2)]
    for i, pixels in enumerate(expected):
        assert np.array_equal(np.asarray(part[i][0]), pixels)


def test_images_beyond_the_limit_stay_files(
    images: Images, capsys: pytest.CaptureFixture[str]
) -> None:
    size = sum(np.asarray(images[i][0]).nbytes for i in range(len(images)))
    assert keep_decoded(images, size - 1, 0) is images
    assert "read for each pass" in capsys.readouterr().err
    assert keep_decoded(images, size, 0) is not images


def test_arrays_are_in_memory_already(small_data: Path) -> None:
    images = open_split("cifar10", small_data, "train")
    assert keep_decoded(images, PLENTY, 0) is images


def test_images_that_are_read_once_stay_files(images: Images) -> None:
    assert keep_if_read_often(images, 1.0) is images
    assert keep_if_read_often(images, 30.0) is not images


@pytest.mark.parametrize("content", [b"no image", None])
def test_a_broken_image_is_named(content: bytes | None, copy_of: Callable[[str], Path]) -> None:
    images = open_split("cars", copy_of("cars"), "train")
    assert isinstance(images.source, ImageFiles)
    file = images.source.folder / images.name(3)
    file.write_bytes(file.read_bytes()[:400] if content is None else content)
    with pytest.raises(DataError, match=file.name):
        keep_decoded(images, PLENTY, 0)


def test_the_limit_of_a_job_counts_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_images, "CGROUP", tmp_path)
    machine = kept_images.free_memory_bytes()
    assert machine > 1e6
    (tmp_path / "memory.current").write_text("300\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert kept_images.free_memory_bytes() > 1e6
    (tmp_path / "memory.max").write_text("1000\n")
    assert kept_images.free_memory_bytes() == 700
