"""Kept images have the pixels of decoded ones, on the host and the device, where there is room."""

import mmap
from pathlib import Path

import numpy as np
import pytest
import torch

import transfer.frozen.crops
import transfer.frozen.kept_images
from pretrain.running import stop
from pretrain.running.memory import image_memory
from tests.pretrain.pixels.photographs import as_jpeg, photograph
from transfer.backbone import InputFormat
from transfer.datasets.expected import DataError
from transfer.datasets.images import ImageFiles, Images, image_files
from transfer.frozen.crops import CropSource, DeviceCrops, RandomCrops, RandomView, fits_on
from transfer.frozen.kept_images import ImageMemoryError, KeptFiles, KeptPixels, with_kept_pixels
from transfer.frozen.probe_training import Labels

NUM_IMAGES, STEPS = 7, range(1, 6)
NUM_BYTES = 3 * sum(40 * (50 + seed) for seed in range(NUM_IMAGES))


@pytest.fixture
def images(tmp_path: Path) -> Images:
    """Images of different widths."""
    for seed in range(NUM_IMAGES):
        (tmp_path / f"{seed}.jpg").write_bytes(as_jpeg(photograph(40, 50 + seed, seed)))
    names = [f"{seed}.jpg" for seed in range(NUM_IMAGES)]
    return image_files(tmp_path, names, range(NUM_IMAGES), [*"abcdefg"])


@pytest.fixture(params=[0, 2])
def workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    for module in (transfer.frozen.crops, transfer.frozen.kept_images):
        monkeypatch.setattr(module, "num_workers", lambda _: request.param)
    return int(request.param)


def with_kept(images: Images) -> Images:
    with image_memory(1):
        return with_kept_pixels(images, 100)


def batches(images: Images) -> list[tuple[torch.Tensor, torch.Tensor]]:
    source = CropSource(images, RandomView(px=16), 0, 25, 25)
    return list(source.batches(InputFormat(), 5, STEPS))


def test_batches_from_kept_images_are_those_of_decoding_each_time(
    images: Images, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with image_memory(0):
        decoded = batches(images)
    kept = with_kept(images)
    monkeypatch.setattr(ImageFiles, "read", lambda *_: pytest.fail("decoded again"))
    found = batches(kept)
    for one, other in zip(decoded, found, strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])


@pytest.mark.parametrize(("limit", "keeps"), [(NUM_BYTES, True), (NUM_BYTES - 1, False)])
def test_images_are_kept_up_to_the_limit(
    images: Images, limit: int, keeps: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with image_memory(limit / 1e9):
        assert (with_kept_pixels(images, 100) is not images) == keeps
    assert ("decoded they need" in capsys.readouterr().err) != keeps


def test_a_set_that_is_far_too_large_is_not_looked_through(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer.frozen.kept_images, "SAMPLE", 2)
    asked: list[int] = []

    def sizes(files: list[str]) -> np.ndarray:
        asked.append(len(files))
        return np.full((len(files), 2), 40)

    monkeypatch.setattr(transfer.frozen.kept_images, "image_sizes", sizes)
    with image_memory(1e-9):
        assert with_kept_pixels(images, 100) is images
    assert asked == [2]


@pytest.mark.parametrize("size", [0, 500])
def test_a_broken_image_is_named(images: Images, workers: int, tmp_path: Path, size: int) -> None:
    (tmp_path / "3.jpg").write_bytes(as_jpeg(photograph(40, 53, 3))[:size])
    with pytest.raises(DataError, match=r"3\.jpg"):
        with_kept(images)


def test_memory_that_the_system_refuses_is_an_error_with_advice(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(ImageMemoryError, match="Cannot allocate memory"):
        with_kept(images)


def test_a_stop_is_heard_while_images_are_decoded(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop, "_asked", [15])
    with pytest.raises(stop.Stopped):
        with_kept(images)


def test_images_with_kept_pixels_and_their_parts_read_no_file(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [images.source.read(i).copy() for i in range(NUM_IMAGES)]
    kept = with_kept(images)
    assert kept.fingerprint == images.fingerprint
    monkeypatch.setattr(ImageFiles, "read", lambda *_: pytest.fail("decoded again"))
    assert with_kept(kept) is kept
    for i, pixels in enumerate(expected):
        assert np.array_equal(np.asarray(kept[i][0]), pixels)
        assert kept[i][1] == i
    part = kept.subset([5, 2, 2])
    assert [part.name(i) for i in range(3)] == ["5.jpg", "2.jpg", "2.jpg"]
    assert all(np.array_equal(part.source.read(k), expected[i]) for k, i in enumerate((5, 2, 2)))


PLACES = [(place, place % 5) for place in range(40)]


@pytest.fixture
def kept(images: Images) -> KeptPixels:
    source = with_kept(images).source
    assert isinstance(source, KeptFiles)
    return source.kept


def within_a_level_on(
    where: torch.device, labels: Labels, images: Images, kept: KeptPixels
) -> bool:
    view = RandomView(px=24, labels=labels)
    crops = RandomCrops(images, view, 3)
    expected, classes = crops(PLACES)
    views, found_classes = crops.draws(PLACES, kept.sizes)
    found = DeviceCrops(kept.sizes, kept.pixels, 24, where)(views)
    assert found.dtype == torch.uint8
    assert torch.equal(classes, found_classes)
    return int((expected.int() - found.cpu().int()).abs().max()) <= 1


@pytest.mark.parametrize("labels", ["classes", "rotations"])
def test_crops_of_the_device_are_within_a_level_of_those_of_the_host(
    labels: Labels, images: Images, kept: KeptPixels
) -> None:
    assert within_a_level_on(torch.device("cpu"), labels, images, kept)


@pytest.mark.gpu
@pytest.mark.parametrize("labels", ["classes", "rotations"])
def test_crops_of_a_gpu_are_within_a_level_of_those_of_the_host(
    labels: Labels, images: Images, kept: KeptPixels
) -> None:
    where = torch.device("cuda")
    assert fits_on(kept, where)
    assert within_a_level_on(where, labels, images, kept)


def test_only_a_gpu_with_room_holds_images(
    kept: KeptPixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not fits_on(kept, torch.device("cpu"))
    for share, fits in ((4, True), (3, False)):
        free = share * len(kept.pixels)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, free))
        assert fits_on(kept, torch.device("cuda")) == fits


@pytest.mark.parametrize("keeps", [True, False])
def test_uploaded_images_have_the_crops_of_those_on_the_device(
    keeps: bool, images: Images, kept: KeptPixels
) -> None:
    where, view = torch.device("cpu"), RandomView(px=24, labels="rotations")
    crops = RandomCrops(with_kept(images) if keeps else images, view, 3)
    views, labels = crops.draws(PLACES, kept.sizes)
    rows, classes, sizes, pixels = crops.uploads(PLACES)
    found = DeviceCrops(sizes.numpy(), pixels.numpy(), 24, where)(rows)
    assert torch.equal(found, DeviceCrops(kept.sizes, kept.pixels, 24, where)(views))
    assert torch.equal(classes, labels)


@pytest.mark.parametrize("fits", [True, False])
def test_a_resumed_training_keeps_to_the_processor_that_it_began_with(
    fits: bool, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer.frozen.crops, "fits_on", lambda *_: fits)
    view = RandomView(px=24)
    with image_memory(1):
        whole = CropSource(images, view, 0, 100, 100)
        old_state = CropSource(images, view, 0, 100, 3)
        for began in ("host", "device"):
            for remaining in (3, 50):
                assert CropSource(images, view, 0, 100, remaining, began).maker == began
    assert whole.maker == old_state.maker == ("device" if fits else "host")
