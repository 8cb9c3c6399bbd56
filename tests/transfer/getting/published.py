"""Small archives of every set, in the layouts of the published ones."""

import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.io import savemat

from transfer.datasets.imagenet.imagenet_c import EXTRA_KINDS, GROUPS
from transfer.datasets.segmented import read_mask
from transfer.getting.command import all_sources

Content = Mapping[str, Path]
"""Files and folders by their places in an archive."""


def write_archive(file: Path, content: Content) -> Path:
    """Write a zip or tar file, compressed by its name.

    A file of any other name is copied.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".zip":
        with zipfile.ZipFile(file, "w") as archive:
            for location, source in content.items():
                inside = [source, *sorted(source.rglob("*"))] if source.is_dir() else [source]
                for path in inside:
                    archive.write(path, Path(location) / path.relative_to(source))
    elif ".tar" in file.name or file.suffix == ".tgz":
        mode = "w:gz" if file.name.endswith("gz") else "w"
        with tarfile.open(file, mode) as tar:  # type: ignore[call-overload]
            for location, source in content.items():
                tar.add(source, location)
    else:
        shutil.copy(content[file.name], file)
    return file


def pack(key: str, data: Path, folder: Path) -> dict[str, Path]:
    """Pack the small version of a source below a data folder.

    Return the archives by name.
    """
    archives = PACKERS[key](data, folder / "inner") if key in PACKERS else _by_name(key, data)
    return {name: write_archive(folder / name, content) for name, content in archives.items()}


def _caltech101(data: Path, inner: Path) -> dict[str, Content]:
    name = "101_ObjectCategories"
    categories = write_archive(inner / f"{name}.tar.gz", {name: data / "caltech101" / name})
    (inner / "junk").write_bytes(b"of macOS")
    content = {
        "caltech-101/Annotations.tar": inner / "junk",
        f"caltech-101/{name}.tar.gz": categories,
        f"__MACOSX/caltech-101/._{name}.tar.gz": inner / "junk",
    }
    return {"caltech-101.zip": content}


def _places365(data: Path, inner: Path) -> dict[str, Content]:
    places365 = data / "places365"
    return {
        "filelist_places365-standard.tar": {file.name: file for file in places365.glob("*.txt")},
        "train_256_places365standard.tar": {"data_256": places365 / "data_256_standard"},
        "val_256.tar": {"val_256": places365 / "val_256"},
    }


def _sun397(data: Path, inner: Path) -> dict[str, Content]:
    sun = data / "SUN397"
    return {
        "SUN397.tar.gz": {f"SUN397/{e.name}": e for e in sun.iterdir() if e.is_dir()},
        "Partitions.zip": {file.name: file for file in sun.glob("*.txt")},
    }


def _imagenet(data: Path, inner: Path) -> dict[str, Content]:
    """Pack a tar file per class, the val images, and the devkit."""
    folders = sorted((data / "imagenet" / "train").iterdir())
    classes = {
        f"{folder.name}.tar": write_archive(
            inner / f"{folder.name}.tar", {file.name: file for file in sorted(folder.iterdir())}
        )
        for folder in folders
    }
    images = val_images(data / "imagenet")
    labels = [file.parent.name for file in images]
    devkit = write_devkit(inner, [folder.name for folder in folders], labels)
    return {
        "ILSVRC2012_img_train.tar": classes,
        "ILSVRC2012_img_val.tar": {file.name: file for file in images},
        "ILSVRC2012_devkit_t12.tar.gz": {devkit.name: devkit},
    }


def val_images(imagenet: Path) -> list[Path]:
    """Return the val images in the order of their numbers."""
    return sorted((imagenet / "val").rglob("*.JPEG"), key=lambda file: file.name)


def write_devkit(folder: Path, wnids: Sequence[str], labels: Sequence[str]) -> Path:
    """Write meta.mat with unordered numbers, and the classes of val images."""
    numbers = {wnid: number for number, wnid in enumerate(reversed(wnids), start=1)}
    fields = [("ILSVRC2012_ID", object), ("WNID", object), ("num_children", object)]
    synsets = np.array([(number, wnid, 0) for wnid, number in numbers.items()], dtype=fields)
    devkit = folder / "ILSVRC2012_devkit_t12"
    (devkit / "data").mkdir(parents=True)
    savemat(devkit / "data" / "meta.mat", {"synsets": synsets[:, None]})
    truth = devkit / "data" / "ILSVRC2012_validation_ground_truth.txt"
    truth.write_text("".join(f"{numbers[wnid]}\n" for wnid in labels))
    return devkit


def write_kaggles_list(folder: Path, labels: Sequence[str]) -> Path:
    """Write the classes of val images, and boxes behind them."""
    lines = [f"ILSVRC2012_val_{i:08d},{wnid} 1 2 3 4" for i, wnid in enumerate(labels, start=1)]
    file = folder / "LOC_val_solution.csv"
    file.write_text("\n".join(["ImageId,PredictionString", *lines, ""]))
    return file


def _voc07(data: Path, inner: Path) -> dict[str, Content]:
    voc = data / "VOCdevkit" / "VOC2007"
    tested = set((voc / "ImageSets/Main/test.txt").read_text().split())
    train, test = "VOCtrainval_06-Nov-2007.tar", "VOCtest_06-Nov-2007.tar"
    content: dict[str, dict[str, Path]] = {train: {}, test: {}}
    for file in sorted(path for path in voc.rglob("*") if path.is_file()):
        archive = test if file.stem in tested or file.stem.endswith("test") else train
        content[archive][file.relative_to(data).as_posix()] = file
    return dict(content)


def _voc12(data: Path, inner: Path) -> dict[str, Content]:
    voc = data / "VOCdevkit" / "VOC2012"
    published = [entry for entry in voc.iterdir() if entry.name != "SegmentationClassAug"]
    content = {f"VOCdevkit/VOC2012/{entry.name}": entry for entry in published}
    return {"VOCtrainval_11-May-2012.tar": content}


def _sbd(data: Path, inner: Path) -> dict[str, Content]:
    (inner / "cls").mkdir(parents=True)
    for file in (data / "VOCdevkit" / "VOC2012" / "SegmentationClassAug").glob("*.png"):
        mask = {"GTcls": {"Segmentation": read_mask(file)}}
        savemat(inner / "cls" / f"{file.stem}.mat", mask)
    return {"benchmark.tgz": {"benchmark_RELEASE/dataset/cls": inner / "cls"}}


def _imagenet_c(data: Path, inner: Path) -> dict[str, Content]:
    return {
        f"{group}.tar": {kind: data / "imagenet-c" / kind for kind in kinds}
        for group, kinds in {**GROUPS, "extra": EXTRA_KINDS}.items()
    }


PACKERS: dict[str, Callable[[Path, Path], dict[str, Content]]] = {
    "caltech101": _caltech101,
    "imagenet": _imagenet,
    "imagenet-c": _imagenet_c,
    "places365": _places365,
    "sbd": _sbd,
    "sun397": _sun397,
    "voc07": _voc07,
    "voc12": _voc12,
}
"""What returns the archives of a data folder.

It gets a folder for archives inside them.
"""
INSIDE = {
    "102flowers.tgz": "jpg",
    "annotations_trainval2017.zip": "annotations",
    "car_devkit.tgz": "devkit",
    "dtd-r1.0.1.tar.gz": "dtd",
}
"""Folders in archives of another name."""


def _by_name(key: str, data: Path) -> dict[str, Content]:
    """Pack the folder of a source, or parts named after archives."""
    source = all_sources()[key]
    names = [archive.name for archive in source.archives]
    if len(names) == 1 and names[0] not in INSIDE:
        return {names[0]: {source.folder: data / source.folder}}
    inside = {
        name: INSIDE.get(name, re.sub(r"(\.tar\.gz|\.tgz|\.zip)$", "", name)) for name in names
    }
    return {name: {part: data / source.folder / part} for name, part in inside.items()}


SOURCES = tuple(key for key, source in all_sources().items() if source.archives)
"""Every source that has archives."""
