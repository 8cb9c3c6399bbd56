"""Corruptions made here: where they go, and that each is the same again."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from transfer.datasets.catalog import open_split
from transfer.datasets.check import check
from transfer.datasets.expected import DataError, Sizes, mark_small
from transfer.datasets.imagenet import make_corruptions as making
from transfer.datasets.imagenet.imagenet_c import SEVERITIES, kind_and_severity
from transfer.datasets.imagenet.make_corruptions import (
    corrupt,
    make_corruptions,
    package_corruptions,
    round_to_image,
)
from transfer.datasets.synthetic.generate import generate

KINDS_MADE = ("snow", "fog", "contrast")


class Noise:
    """Noise from torch's and from a NumPy generator; the package's corruptions use either."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng()

    def __call__(self, pixels: Tensor) -> Tensor:
        drawn = torch.from_numpy(self.rng.normal(0, 0.1, size=tuple(pixels.shape)))
        return pixels + drawn + 0.1 * torch.randn(pixels.shape)


def unseeded_noise() -> dict[tuple[str, int], Noise]:
    return {(kind, severity): Noise() for kind in KINDS_MADE for severity in SEVERITIES}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small ImageNet, an image of each class, and noise in the place of the package."""
    generate(tmp_path, keys=["in1k"])
    small = open_split("in100", tmp_path, "test").subset(range(0, 160, 20))
    monkeypatch.setattr(making, "CROP_PX", 16)
    monkeypatch.setattr(making, "RESIZE_PX", 16)
    monkeypatch.setattr(making, "version", lambda package: "0.13")
    monkeypatch.setattr(making, "package_corruptions", unseeded_noise)
    monkeypatch.setattr(making, "open_split", lambda *_: small)
    mark_small(tmp_path, "in100", Sizes(classes=8, counts={"test": 8}))
    return tmp_path


def contents(data: Path) -> dict[str, bytes]:
    folder = data / "imagenet-c-made"
    files = sorted(folder.rglob("*.JPEG"))
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def test_made_corruptions_are_a_set_of_their_own(data: Path) -> None:
    assert make_corruptions(data).startswith("120 images, 3 corruptions by torch-uncertainty 0.13")
    images = open_split("imagenet_c100_made", data, "test")
    assert {kind_and_severity(images.name(i)) for i in range(len(images))} == {
        (kind, severity) for kind in KINDS_MADE for severity in SEVERITIES
    }
    assert images[0][0].size == (16, 16)
    assert not (data / "imagenet-c").exists()
    assert check("imagenet_c100_made", data, decode=False).ok


def test_torn_images_are_made_anew_and_any_number_of_workers_makes_the_same(data: Path) -> None:
    make_corruptions(data)
    before = contents(data)
    cut, zeros, empty = sorted((data / "imagenet-c-made" / "fog").rglob("*.JPEG"))[:3]
    cut.write_bytes(cut.read_bytes()[:-40])
    zeros.write_bytes(bytes(zeros.stat().st_size))
    empty.write_bytes(b"")
    make_corruptions(data)
    assert contents(data) == before
    (data / "imagenet-c-made").rename(data / "first")
    make_corruptions(data, workers=2)
    assert contents(data) == before


def test_an_interrupted_set_is_unfinished_and_goes_on(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("pretrain.running.stop.exit_if_requested", lambda: sys.exit(75))
        with pytest.raises(SystemExit):
            make_corruptions(data)
    report = check("imagenet_c100_made", data, decode=False)
    assert not report.ok
    assert "unfinished; run make-corruptions again" in report.problems[0]
    first = contents(data)
    make_corruptions(data)
    assert first
    assert first.items() <= contents(data).items()
    assert check("imagenet_c100_made", data, decode=False).ok


def test_another_versions_images_and_an_incomplete_source_are_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_corruptions(data)
    monkeypatch.setattr(making, "version", lambda package: "0.14")
    with pytest.raises(DataError, match=r"by torch-uncertainty 0\.13, not .* 0\.14; remove it"):
        make_corruptions(data)
    mark_small(data, "in100", Sizes(classes=8, counts={"test": 9}))
    with pytest.raises(DataError, match="8 test images, 9 are expected"):
        make_corruptions(data)


@pytest.mark.slow  # the package alone takes ten seconds to import
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its use of NumPy
def test_every_corruption_of_the_package_is_the_same_again() -> None:
    pytest.importorskip("torch_uncertainty", reason="needs the extra corruptions")
    pixels = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(0))
    corruptions = package_corruptions()
    assert len(corruptions) == 18 * 5
    for key, corruption in corruptions.items():
        first, again = (round_to_image(corrupt(pixels, corruption, f"{key} a")) for _ in range(2))
        assert first.tobytes() == again.tobytes(), key
        if hasattr(corruption, "rng"):
            other = round_to_image(corrupt(pixels, corruption, f"{key} b"))
            assert other.tobytes() != first.tobytes(), key
