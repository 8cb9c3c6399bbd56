"""Listings: omitted and reported files, refused splits, and added files."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from pretrain.data.images import DataError
from pretrain.data.listing import find_images, require_one_split


def test_added_file_is_found_where_folders_keep_their_times(image_folder: Path) -> None:
    """Overlays and buckets report old times for a changed folder."""
    folder = image_folder / "warm"
    times = folder.stat()
    assert len(find_images(image_folder)) == 20
    Image.new("L", (9, 5)).save(folder / "new.png")
    os.utime(folder, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert len(find_images(image_folder)) == 21


@pytest.mark.slow
def test_all_processes_name_a_refused_folder(image_folder: Path, tmp_path: Path) -> None:
    (image_folder / "cold").rename(image_folder / "train")
    (image_folder / "warm").rename(image_folder / "val")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    args = ["--data", str(image_folder), "--out", str(tmp_path / "run"), "--device", "cpu"]
    command = [sys.executable, "-m", "pretrain", "moco/smoke", *args]
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = [
        subprocess.Popen(
            command,
            env={**os.environ, **meeting, "RANK": rank, "LOCAL_RANK": rank},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    for process in started:
        _, errors = process.communicate(timeout=100)
        assert process.returncode == 2
        assert f"--data {image_folder}/train" in errors
    assert not (tmp_path / "run").exists()


def test_nothing_is_written(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    find_images(image_folder)
    assert not list(home.iterdir())


def test_files_of_other_suffixes_are_counted_by_suffix(image_folder: Path) -> None:
    for i in range(3):
        (image_folder / f"warm/{i}.HEIC").touch()
        (image_folder / f"warm/image{i}").touch()
    (image_folder / "labels.csv").touch()
    line = find_images(image_folder).remark
    assert line.startswith("7 files are skipped")
    assert line.endswith(": .heic (3), no suffix (3), .csv (1)")


def test_only_archives_are_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "n01440764.tar").touch()
    with pytest.raises(DataError, match=r"no images .* 1 files are skipped.*: \.tar \(1\)"):
        find_images(tmp_path)


@pytest.mark.parametrize(
    ("folders", "choice"),
    [
        (("train/a", "val/a"), "train"),
        (("Train", "Valid", "Test"), "Train"),
        (("training_set", "test_set"), "training_set"),
        (("train2017", "val2017"), "train2017"),
        (("val_256", "test_256"), "val_256"),
        (("ILSVRC/Data/CLS-LOC/train/n1", "ILSVRC/Data/CLS-LOC/val"), "ILSVRC/Data/CLS-LOC/train"),
        (("cifar10/train/cat", "cifar10/test/cat", "pets/cat"), "cifar10/train"),
        (("train/images", "valid/images", "test/images"), "train"),  # YOLO
    ],
)
def test_several_splits_are_refused_with_the_option(folders: tuple[str, ...], choice: str) -> None:
    data = Path("/data")
    with pytest.raises(DataError) as error:
        require_one_split(data, [f"{folder}/0.jpg" for folder in folders])
    assert f"--data {data / choice}." in str(error.value)


@pytest.mark.parametrize(
    "folders",
    [
        ("train", "bus", "tractor"),  # classes of CIFAR-100 and VOC
        ("train_station", "test_tube"),
        ("train/a", "train/b"),
        ("train", "unlabeled"),
        ("",),
    ],
)
def test_single_names_of_splits_are_classes(folders: tuple[str, ...]) -> None:
    require_one_split(Path("/data"), [f"{folder}/0.jpg".lstrip("/") for folder in folders])


def test_a_split_is_not_the_only_class(image_folder: Path) -> None:
    (image_folder / "train").mkdir()
    for name in ("cold", "warm"):
        (image_folder / name).rename(image_folder / "train" / name)
    images = find_images(image_folder)
    assert len(images) == 20
    with pytest.raises(DataError, match=f"--data {image_folder}/train"):
        images.classes  # noqa: B018
