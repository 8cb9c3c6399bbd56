"""Kept images have the pixels of decoded ones, where there is room."""

from pathlib import Path

import numpy as np
import pytest
import torch

import transfer.frozen.crops
import transfer.frozen.image_cache
from pretrain.running import stop
from pretrain.running.host_memory import image_memory
from tests.pretrain.pixels.photographs import as_jpeg, photograph
from transfer.datasets.expected import DataError
from transfer.datasets.images import ImageFiles, Images, image_files
from transfer.frozen.crops import crop_batches
from transfer.frozen.image_cache import ImageMemoryError, with_cached_pixels
from transfer.frozen.probe_training import ProbeTraining

NUM_IMAGES = 7
NUM_BYTES = 3 * sum(40 * (50 + seed) for seed in range(NUM_IMAGES))
TRAINING = ProbeTraining(learning_rates=(1.0,), crop_px=16)


@pytest.fixture
def images(tmp_path: Path) -> Images:
    """Images of different widths."""
    for seed in range(NUM_IMAGES):
        (tmp_path / f"{seed}.jpg").write_bytes(as_jpeg(photograph(40, 50 + seed, seed)))
    names = [f"{seed}.jpg" for seed in range(NUM_IMAGES)]
    return image_files(tmp_path, names, range(NUM_IMAGES), [*"abcdefg"])


def with_kept(images: Images) -> Images:
    with image_memory(1):
        return with_cached_pixels(images, 100)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_from_kept_images_are_those_of_decoding_each_time(
    images: Images, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batches(images: Images) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return list(crop_batches(images, TRAINING, 0, 5, range(1, 6)))

    for module in (transfer.frozen.crops, transfer.frozen.image_cache):
        monkeypatch.setattr(module, "num_workers", lambda _: workers)
    with image_memory(0):
        decoded = batches(images)
    stored = with_kept(images)
    monkeypatch.setattr(ImageFiles, "read", lambda *_: pytest.fail("decoded again"))
    for item, second in zip(decoded, batches(stored), strict=True):
        assert all(map(torch.equal, item, second))


@pytest.mark.parametrize(("limit", "keeps"), [(NUM_BYTES, True), (NUM_BYTES - 1, False)])
def test_images_are_kept_up_to_the_limit(
    images: Images, limit: int, keeps: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with image_memory(limit / 1e9):
        assert (with_cached_pixels(images, 100) is not images) == keeps
    assert ("their pixels need" in capsys.readouterr().err) != keeps


def test_a_set_that_is_far_too_large_is_not_looked_through(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer.frozen.image_cache, "SAMPLE", 2)
    requested: list[int] = []

    def sizes(files: list[str]) -> np.ndarray:
        requested.append(len(files))
        return np.full((len(files), 2), 40)

    monkeypatch.setattr(transfer.frozen.image_cache, "image_sizes", sizes)
    with image_memory(1e-9):
        assert with_cached_pixels(images, 100) is images
    assert requested == [2]


@pytest.mark.parametrize("size", [0, 500])
def test_a_broken_image_is_named(images: Images, tmp_path: Path, size: int) -> None:
    (tmp_path / "3.jpg").write_bytes(as_jpeg(photograph(40, 53, 3))[:size])
    with pytest.raises(DataError, match=r"3\.jpg"):
        with_kept(images)


def test_missing_memory_and_a_stop_end_the_decoding(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(transfer.frozen.image_cache, "free_memory", lambda: NUM_BYTES - 1)
        with pytest.raises(ImageMemoryError, match="GB of memory are free"):
            with_kept(images)
    monkeypatch.setattr(stop, "_received_signals", [15])
    with pytest.raises(stop.Stopped):
        with_kept(images)


def test_images_with_cached_pixels_and_their_parts_read_no_file(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [images.source.read(i).copy() for i in (5, 2, 2)]
    stored = with_kept(images)
    assert stored.fingerprint == images.fingerprint
    monkeypatch.setattr(ImageFiles, "read", lambda *_: pytest.fail("decoded again"))
    assert with_kept(stored) is stored
    part = stored.subset([5, 2, 2])
    assert [part.name(i) for i in range(3)] == ["5.jpg", "2.jpg", "2.jpg"]
    assert all(np.array_equal(np.asarray(part[i][0]), pixels) for i, pixels in enumerate(expected))
    assert [part[i][1] for i in range(3)] == [5, 2, 2]
