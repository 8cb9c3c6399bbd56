"""Crops on the device against those of the host, from the same draws."""

from pathlib import Path

import pytest
import torch

import transfer.frozen.crops
from tests.pretrain.pixels.photographs import as_jpeg, photograph
from transfer.datasets.images import Images, image_files
from transfer.frozen.crops import CropSource, Draws, RandomCrops, RandomView, Uploads, cut_uploads
from transfer.frozen.device_crops import DeviceCrops, fits_on
from transfer.frozen.kept_images import KeptImages, keep_images
from transfer.frozen.probe_training import Labels
from transfer.running.memory import image_memory

PLACES = [(place, place % 5) for place in range(40)]


@pytest.fixture
def images(tmp_path: Path) -> Images:
    """Images of different sizes."""
    names = [f"{seed}.jpg" for seed in range(5)]
    for seed, name in enumerate(names):
        (tmp_path / name).write_bytes(as_jpeg(photograph(40 + 3 * seed, 60 - seed, seed)))
    return image_files(tmp_path, names, range(5), [*"abcde"])


@pytest.fixture
def kept(images: Images) -> KeptImages:
    with image_memory(1):
        kept = keep_images(images, 100)
    assert kept is not None
    return kept


def within_a_level_on(
    where: torch.device, labels: Labels, images: Images, kept: KeptImages
) -> bool:
    view = RandomView(px=24, labels=labels)
    expected, classes = RandomCrops(images, view, 3, kept)(PLACES)
    views, found_classes = Draws(images, view, 3, kept.sizes)(PLACES)
    found = DeviceCrops(kept, 24, where)(views)
    assert found.dtype == torch.uint8
    assert torch.equal(classes, found_classes)
    return int((expected.int() - found.cpu().int()).abs().max()) <= 1


@pytest.mark.parametrize("labels", ["classes", "rotations"])
def test_crops_of_the_device_are_within_a_level_of_those_of_the_host(
    labels: Labels, images: Images, kept: KeptImages
) -> None:
    assert within_a_level_on(torch.device("cpu"), labels, images, kept)


@pytest.mark.gpu
@pytest.mark.parametrize("labels", ["classes", "rotations"])
def test_crops_of_a_gpu_are_within_a_level_of_those_of_the_host(
    labels: Labels, images: Images, kept: KeptImages
) -> None:
    where = torch.device("cuda")
    assert fits_on(kept, where)
    assert within_a_level_on(where, labels, images, kept)


def test_only_a_gpu_with_room_holds_images(
    kept: KeptImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not fits_on(kept, torch.device("cpu"))
    for share, fits in ((4, True), (3, False)):
        free = share * len(kept.pixels)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, free))
        assert fits_on(kept, torch.device("cuda")) == fits


@pytest.mark.parametrize("keeps", [True, False])
def test_uploaded_images_have_the_crops_of_those_on_the_device(
    keeps: bool, images: Images, kept: KeptImages
) -> None:
    where, view = torch.device("cpu"), RandomView(px=24, labels="rotations")
    views, labels = Draws(images, view, 3, kept.sizes)(PLACES)
    made = Uploads(images, view, 3, kept if keeps else None)(PLACES)
    assert torch.equal(cut_uploads(made, 24, where), DeviceCrops(kept, 24, where)(views))
    assert torch.equal(made[1], labels)


@pytest.mark.parametrize("fits", [True, False])
def test_a_resumed_training_keeps_to_the_processor_that_it_began_with(
    fits: bool, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer.frozen.crops, "fits_on", lambda *_: fits)
    with image_memory(1):
        whole = CropSource(images, 24, 100, 100)
        old_state = CropSource(images, 24, 100, 3)
        for began in ("host", "device"):
            for remaining in (3, 50):
                assert CropSource(images, 24, 100, remaining, began).maker == began
    assert whole.maker == old_state.maker == ("device" if fits else "host")
