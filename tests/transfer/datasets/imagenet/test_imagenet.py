"""ImageNet's lists, its corrupted images, also those made here, and ObjectNet's classes."""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.transfer.datasets.conftest import CopyOf
from transfer.datasets.catalog import DATASETS, dataset_info, expected_sizes, open_split
from transfer.datasets.check import check
from transfer.datasets.expected import SMALL_DATA, DataError, Sizes, mark_small
from transfer.datasets.imagenet import make_corruptions as making
from transfer.datasets.imagenet.imagenet import imagenet100_wnids
from transfer.datasets.imagenet.imagenet_c import (
    EXTRA_KINDS,
    KINDS,
    MAIN_KINDS,
    SEVERITIES,
    kind_and_severity,
)
from transfer.datasets.imagenet.make_corruptions import (
    corrupt,
    make_corruptions,
    package_corruptions,
    round_to_image,
)
from transfer.datasets.imagenet.objectnet import WNIDS, read_objectnet13
from transfer.datasets.synthetic.generate import generate


def test_a_list_names_the_images_and_their_classes(small_data: Path) -> None:
    lines = (small_data / "imagenet_subsets" / "1percent.txt").read_text().split()
    images = open_split("in1k_1pct", small_data, "trainval")
    names = [Path(images.name(i)).name for i in range(len(images))]
    assert sorted(names) == sorted(lines)
    assert [images.class_names[label] for label in images.labels] == [n[:9] for n in names]
    assert images.class_names == open_split("in1k", small_data, "trainval").class_names
    whole = open_split("in1k", small_data, "test").fingerprint
    assert open_split("in1k_1pct", small_data, "test").fingerprint == whole
    assert open_split("in1k_10pct", small_data, "test").fingerprint == whole


def test_each_list_is_a_set_of_its_own(copy_of: CopyOf) -> None:
    data = copy_of("in1k_1pct")
    file = data / "imagenet_subsets" / "1percent.txt"
    file.write_text("n99999999_1.JPEG\n")
    with pytest.raises(DataError, match=r"1percent\.txt, line 1: 'n99999999'"):
        open_split("in1k_1pct", data, "trainval")
    file.unlink()
    assert DATASETS["in1k_10pct"].is_there(data)
    assert not DATASETS["in1k_1pct"].is_there(data)
    with pytest.raises(DataError, match=r"1percent\.txt is not there"):
        open_split("in1k_1pct", data, "test")


def test_every_class_comes_under_every_corruption_at_every_severity(small_data: Path) -> None:
    assert (len(set(MAIN_KINDS)), len(set(KINDS))) == (15, 19)
    images = open_split("imagenet_c100", small_data, "test")
    names = [images.name(i) for i in range(len(images))]
    classes = [images.class_names[label] for label in images.labels]
    cells = Counter((*kind_and_severity(n), c) for n, c in zip(names, classes, strict=True))
    assert len(cells) == 19 * 5 * len(images.class_names)
    assert set(cells.values()) == {1}
    assert classes == [name.split("/")[3] for name in names]


def test_what_is_missing_of_the_corruptions_is_named(copy_of: CopyOf) -> None:
    data = copy_of("imagenet_c100")
    info = dataset_info("imagenet_c100")
    assert info.departures(data) == []
    next((data / "imagenet-c" / "fog" / "3").rglob("*.JPEG")).unlink()
    problems = check("imagenet_c100", data, decode=False).problems
    assert "test: 759 images found, 760 expected" in problems
    shutil.rmtree(data / "imagenet-c" / "spatter")
    with pytest.raises(DataError, match=r"1 of 19 corruptions are missing.*spatter"):
        open_split("imagenet_c100", data, "test")
    for kind in set(EXTRA_KINDS) - {"spatter"}:
        shutil.rmtree(data / "imagenet-c" / kind)
    # without all of extra.tar, the set is whole and says what it lacks
    mark_small(data, "imagenet_c100", Sizes(classes=8, counts={"test": 15 * 5 * 8 - 1}))
    assert check("imagenet_c100", data, decode=False).ok
    assert "no all19_top1" in info.departures(data)[0]
    (data / SMALL_DATA).unlink()
    assert expected_sizes("imagenet_c100", data).counts == {"test": 15 * 5 * 5_000}


def test_made_corruptions_name_their_maker_in_every_record(small_data: Path) -> None:
    (line,) = dataset_info("imagenet_c100_made").departures(small_data)
    assert line.startswith("corruptions made by generate-data 1, 15 kinds, no speckle_noise,")


def test_folders_find_their_class_by_label_whatever_they_are_called(tmp_path: Path) -> None:
    assert len(set(WNIDS.values()) & set(imagenet100_wnids())) == 13
    folders = {"zz_chair": "Chair", "aa_bowl": "Mixing / Salad Bowl", "other": "Air freshener"}
    root = tmp_path / "objectnet-1.0"
    (root / "mappings").mkdir(parents=True)
    (root / "mappings" / "folder_to_objectnet_label.json").write_text(json.dumps(folders))
    for name in folders:
        (root / "images" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(root / "images" / name / "0.png")
    images = read_objectnet13(tmp_path, "test", Sizes(classes=2, counts={"test": 2}))
    found = {images.name(i).split("/")[2]: images.class_names[images[i][1]] for i in range(2)}
    assert found == {"aa_bowl": "n03775546", "zz_chair": "n04099969"}


def test_a_half_unpacked_objectnet_is_known_by_its_total(copy_of: CopyOf) -> None:
    data = copy_of("objectnet13")
    for file in (data / "objectnet-1.0" / "images" / "jeans").iterdir():
        file.unlink()
    report = check("objectnet13", data, decode=False)
    assert "test: class n03594734 has no image" in report.problems
    (data / SMALL_DATA).unlink()
    report = check("objectnet13", data, decode=False)
    assert "37 images in 5 class folders, about 50,000 in 313 are published" in report.problems[0]


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
