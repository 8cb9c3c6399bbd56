"""Small archives of every set, in the layouts of the published ones."""

import hashlib
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.io import savemat

from transfer.datasets.imagenet.imagenet_c import EXTRA_KINDS, GROUPS
from transfer.datasets.segmented import read_mask

Packer = Callable[[Path, Path], dict[str, Path]]
"""Packs the small version below a data folder into archives in another folder, by their names."""


@dataclass(frozen=True)
class Packed:
    """The archives of one source, by their usual names."""

    files: Mapping[str, Path]

    def md5(self, name: str) -> str:
        """Return the MD5 of an archive."""
        return hashlib.md5(self.files[name].read_bytes()).hexdigest()


def tar(file: Path, content: Mapping[str, Path]) -> Path:
    """Write a tar file, compressed by its name, of files and folders at these places."""
    file.parent.mkdir(parents=True, exist_ok=True)
    mode = "w:gz" if file.name.endswith("gz") else "w"
    with tarfile.open(file, mode) as archive:  # type: ignore[call-overload]
        for place, source in content.items():
            archive.add(source, place)
    return file


def zip_(file: Path, content: Mapping[str, Path]) -> Path:
    """Write a zip file of files and folders at these places."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        for place, source in content.items():
            inside = [source, *sorted(source.rglob("*"))] if source.is_dir() else [source]
            for path in inside:
                archive.write(path, Path(place) / path.relative_to(source))
    return file


def pack(key: str, data: Path, folder: Path) -> Packed:
    """Pack the small version of a source below a data folder."""
    return Packed(PACKERS[key](data, folder))


def _same_folder(name: str, inside: str) -> Packer:
    """Return the packer of one archive that holds the set's folder as it is."""
    return lambda data, folder: {name: tar(folder / name, {inside: data / inside})}


def _caltech101(data: Path, folder: Path) -> dict[str, Path]:
    inner = tar(
        folder / "inner" / "101_ObjectCategories.tar.gz",
        {"101_ObjectCategories": data / "caltech101" / "101_ObjectCategories"},
    )
    junk = _file(folder / "inner" / "junk", b"of macOS")
    content = {
        "caltech-101/Annotations.tar": junk,
        "caltech-101/101_ObjectCategories.tar.gz": inner,
        "__MACOSX/caltech-101/._101_ObjectCategories.tar.gz": junk,
    }
    return {"caltech-101.zip": zip_(folder / "caltech-101.zip", content)}


def _cars(data: Path, folder: Path) -> dict[str, Path]:
    cars, labels = data / "stanford_cars", "cars_test_annos_withlabels.mat"
    return {
        "cars_train.tgz": tar(folder / "cars_train.tgz", {"cars_train": cars / "cars_train"}),
        "cars_test.tgz": tar(folder / "cars_test.tgz", {"cars_test": cars / "cars_test"}),
        "car_devkit.tgz": tar(folder / "car_devkit.tgz", {"devkit": cars / "devkit"}),
        labels: _file(folder / labels, (cars / labels).read_bytes()),
    }


def _dtd(data: Path, folder: Path) -> dict[str, Path]:
    name = "dtd-r1.0.1.tar.gz"
    return {name: tar(folder / name, {"dtd": data / "dtd" / "dtd"})}


def _flowers(data: Path, folder: Path) -> dict[str, Path]:
    flowers = data / "flowers-102"
    return {
        "102flowers.tgz": tar(folder / "102flowers.tgz", {"jpg": flowers / "jpg"}),
        **{
            name: _file(folder / name, (flowers / name).read_bytes())
            for name in ("imagelabels.mat", "setid.mat")
        },
    }


def _inat2019(data: Path, folder: Path) -> dict[str, Path]:
    inside = {
        "train_val2019.tar.gz": "train_val2019",
        "train2019.json.tar.gz": "train2019.json",
        "val2019.json.tar.gz": "val2019.json",
    }
    return {
        name: tar(folder / name, {path: data / "inat2019" / path}) for name, path in inside.items()
    }


def _pets(data: Path, folder: Path) -> dict[str, Path]:
    return {
        f"{name}.tar.gz": tar(folder / f"{name}.tar.gz", {name: data / "oxford-iiit-pet" / name})
        for name in ("images", "annotations")
    }


def _places365(data: Path, folder: Path) -> dict[str, Path]:
    places, lists = data / "places365", "filelist_places365-standard.tar"
    train = "train_256_places365standard.tar"
    return {
        lists: tar(folder / lists, {file.name: file for file in places.glob("*.txt")}),
        train: tar(folder / train, {"data_256": places / "data_256_standard"}),
        "val_256.tar": tar(folder / "val_256.tar", {"val_256": places / "val_256"}),
    }


def _sun397(data: Path, folder: Path) -> dict[str, Path]:
    sun, images = data / "SUN397", "SUN397.tar.gz"
    letters = {f"SUN397/{entry.name}": entry for entry in sun.iterdir() if entry.is_dir()}
    lists = {file.name: file for file in sun.glob("*.txt")}
    return {
        images: tar(folder / images, letters),
        "Partitions.zip": zip_(folder / "Partitions.zip", lists),
    }


def _imagenet(data: Path, folder: Path) -> dict[str, Path]:
    """Pack a tar file per class, the val images without folders, and the devkit's two lists."""
    wnids = sorted(path.name for path in (data / "imagenet" / "train").iterdir())
    classes = {
        f"{wnid}.tar": tar(
            folder / "inner" / f"{wnid}.tar",
            {file.name: file for file in sorted((data / "imagenet" / "train" / wnid).iterdir())},
        )
        for wnid in wnids
    }
    images = sorted((data / "imagenet" / "val").rglob("*.JPEG"), key=lambda file: file.name)
    train, val = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
    devkit = write_devkit(folder / "inner", wnids, [file.parent.name for file in images])
    name = "ILSVRC2012_devkit_t12.tar.gz"
    return {
        train: tar(folder / train, classes),
        val: tar(folder / val, {file.name: file for file in images}),
        name: tar(folder / name, {"ILSVRC2012_devkit_t12": devkit}),
    }


def write_devkit(folder: Path, wnids: Sequence[str], labels: Sequence[str]) -> Path:
    """Write meta.mat, whose numbers are in no order of the wnids, and the classes of val images."""
    numbers = {wnid: number for number, wnid in enumerate(reversed(wnids), start=1)}
    fields = [("ILSVRC2012_ID", object), ("WNID", object), ("num_children", object)]
    synsets = np.array([(number, wnid, 0) for wnid, number in numbers.items()], dtype=fields)
    devkit = folder / "ILSVRC2012_devkit_t12"
    (devkit / "data").mkdir(parents=True)
    savemat(devkit / "data" / "meta.mat", {"synsets": synsets[:, None]})
    truth = "".join(f"{numbers[wnid]}\n" for wnid in labels)
    _file(devkit / "data" / "ILSVRC2012_validation_ground_truth.txt", truth.encode())
    return devkit


def _imagenet_c(data: Path, folder: Path) -> dict[str, Path]:
    kinds_of = {**GROUPS, "extra": EXTRA_KINDS}
    return {
        f"{group}.tar": tar(
            folder / f"{group}.tar", {kind: data / "imagenet-c" / kind for kind in kinds}
        )
        for group, kinds in kinds_of.items()
    }


def _imagenet_lists(data: Path, folder: Path) -> dict[str, Path]:
    lists = data / "imagenet_subsets"
    return {file.name: _file(folder / file.name, file.read_bytes()) for file in lists.iterdir()}


def _objectnet(data: Path, folder: Path) -> dict[str, Path]:
    name, inside = "objectnet-1.0.zip", "objectnet-1.0"
    return {name: zip_(folder / name, {inside: data / inside})}


def _voc07(data: Path, folder: Path) -> dict[str, Path]:
    voc = data / "VOCdevkit" / "VOC2007"
    tested = set((voc / "ImageSets/Main/test.txt").read_text().split())
    content: dict[str, dict[str, Path]] = {"VOCtrainval_06-Nov-2007": {}, "VOCtest_06-Nov-2007": {}}
    for file in sorted(path for path in voc.rglob("*") if path.is_file()):
        of_test = file.stem in tested or file.stem.endswith("test")
        archive = "VOCtest_06-Nov-2007" if of_test else "VOCtrainval_06-Nov-2007"
        content[archive][file.relative_to(data).as_posix()] = file
    return {f"{name}.tar": tar(folder / f"{name}.tar", files) for name, files in content.items()}


def _voc12(data: Path, folder: Path) -> dict[str, Path]:
    voc, name = data / "VOCdevkit" / "VOC2012", "VOCtrainval_11-May-2012.tar"
    published = [entry for entry in voc.iterdir() if entry.name != "SegmentationClassAug"]
    content = {f"VOCdevkit/VOC2012/{entry.name}": entry for entry in published}
    return {name: tar(folder / name, content)}


def _sbd(data: Path, folder: Path) -> dict[str, Path]:
    masks = data / "VOCdevkit" / "VOC2012" / "SegmentationClassAug"
    for file in masks.glob("*.png"):
        cls = folder / "inner" / "cls"
        cls.mkdir(parents=True, exist_ok=True)
        savemat(cls / f"{file.stem}.mat", {"GTcls": {"Segmentation": read_mask(file)}})
    name = "benchmark.tgz"
    return {name: tar(folder / name, {"benchmark_RELEASE/dataset/cls": folder / "inner" / "cls"})}


def _coco(data: Path, folder: Path) -> dict[str, Path]:
    names = {"train2017": "train2017", "val2017": "val2017"}
    names["annotations_trainval2017"] = "annotations"
    return {
        f"{name}.zip": zip_(folder / f"{name}.zip", {inside: data / "coco" / inside})
        for name, inside in names.items()
    }


def _file(file: Path, content: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


PACKERS: dict[str, Packer] = {
    "aircraft": _same_folder("fgvc-aircraft-2013b.tar.gz", "fgvc-aircraft-2013b"),
    "caltech101": _caltech101,
    "cars": _cars,
    "cifar10": _same_folder("cifar-10-python.tar.gz", "cifar-10-batches-py"),
    "cifar100": _same_folder("cifar-100-python.tar.gz", "cifar-100-python"),
    "coco": _coco,
    "cub200": _same_folder("CUB_200_2011.tgz", "CUB_200_2011"),
    "dtd": _dtd,
    "flowers": _flowers,
    "food": _same_folder("food-101.tar.gz", "food-101"),
    "imagenet": _imagenet,
    "imagenet-c": _imagenet_c,
    "imagenet-lists": _imagenet_lists,
    "inat2019": _inat2019,
    "objectnet": _objectnet,
    "pets": _pets,
    "places365": _places365,
    "sbd": _sbd,
    "sun397": _sun397,
    "voc07": _voc07,
    "voc12": _voc12,
}
"""Every source that has archives."""
