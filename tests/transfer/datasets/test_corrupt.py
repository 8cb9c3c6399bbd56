"""Corruptions made here: where they go, and that each is the same again."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

import transfer.datasets.corrupt
from transfer.datasets.catalog import open_split
from transfer.datasets.corrupt import CLASS_NAMES, make_corruptions, package_corruptions
from transfer.datasets.generate import generate
from transfer.datasets.imagenet_c import KINDS, MAIN_KINDS, kind_and_severity
from transfer.datasets.images import DataError


def noise(pixels: Tensor) -> Tensor:
    return pixels + torch.randn(pixels.shape)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small ImageNet, and noise in the place of the package."""
    generate(tmp_path, keys=["in1k"])
    monkeypatch.setattr(transfer.datasets.corrupt, "CROP_PX", 32)
    monkeypatch.setattr(transfer.datasets.corrupt, "RESIZE_PX", 32)
    monkeypatch.setattr(transfer.datasets.corrupt, "version", lambda package: "0")
    made = {(kind, severity): noise for kind in MAIN_KINDS for severity in range(1, 6)}
    kept = {key: made[key] for key in made if key[1] in (1, 2, 3, 4, 5)}
    monkeypatch.setattr(transfer.datasets.corrupt, "package_corruptions", lambda: kept)
    small = open_split("in100", tmp_path, "test").subset(range(0, 160, 20))
    monkeypatch.setattr(transfer.datasets.corrupt, "open_split", lambda *_: small)
    return tmp_path


def test_made_corruptions_are_a_set_of_their_own(data: Path) -> None:
    assert make_corruptions(data).startswith("600 images, 15 corruptions by torch-uncertainty")
    images = open_split("imagenet_c100_made", data, "test")
    assert {kind_and_severity(images.name(i)) for i in range(len(images))} == {
        (kind, severity) for kind in MAIN_KINDS for severity in range(1, 6)
    }
    assert images[0][0].size == (32, 32)
    assert not (data / "imagenet-c").exists()


def test_an_image_made_again_is_the_same(data: Path) -> None:
    make_corruptions(data)
    file = next((data / "imagenet-c-made" / "snow" / "2").rglob("*.JPEG"))
    before = file.read_bytes()
    file.unlink()
    make_corruptions(data)
    assert file.read_bytes() == before


def test_only_spatter_has_no_class_in_the_package() -> None:
    assert set(KINDS) - set(CLASS_NAMES) == {"spatter"}


def test_an_absent_package_is_told_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch_uncertainty", None)
    with pytest.raises(DataError, match=r"pip install -e '.\[corruptions\]'"):
        package_corruptions()
