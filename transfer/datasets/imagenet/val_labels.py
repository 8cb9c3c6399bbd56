"""The classes of ImageNet's val images, which are published in one flat folder.

Lists of them come with the devkit of 2012 (numbers of `meta.mat`), with Kaggle's copy
(`LOC_val_solution.csv`), and with OpenMMLab's and Caffe's (`val.txt`, places in the sorted wnids).
"""

import csv
import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

from transfer.datasets.expected import DataError
from transfer.datasets.images import class_names
from transfer.datasets.mat_files import read_mat

FLAT = "ILSVRC2012_val_*.JPEG"
GROUND_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
META = "meta.mat"
DEVKIT = "ILSVRC2012_devkit_t12.tar.gz"
KAGGLE = "LOC_val_solution.csv"
NUMBERED = "val.txt"
LARGEST = 64 << 20
"""Bytes of a list that are read; the devkit's files have a few hundred kB."""
KAGGLE_INNER = "imagenet_object_localization_patched2019"
"""Archive that newer copies of Kaggle's zip file hold, and the folder that it is unpacked to."""
VAL_FOLDERS = (
    *("val", "ILSVRC/Data/CLS-LOC/val", "Data/CLS-LOC/val"),
    f"{KAGGLE_INNER}/ILSVRC/Data/CLS-LOC/val",
)
FOLDERS = ("", "devkit", "meta", "ILSVRC2012_devkit_t12", "devkit/ILSVRC2012_devkit_t12", "..")
"""Folders, from that of the set, in which lists are looked for."""


def sort_val_images(raw: Path) -> None:
    """Move flat val images of an unpacked set to class folders; what was moved before stays."""
    for val in (raw / name for name in VAL_FOLDERS):
        names = sorted(file.name for file in val.glob(FLAT)) if val.is_dir() else []
        if names:
            wnids = require_labels(raw, names)
            for name in names:
                (val / wnids[name]).mkdir(exist_ok=True)
                (val / name).rename(val / wnids[name] / name)


def link_sorted(root: Path, places: Mapping[str, str], target: Path) -> bool:
    """Write links to a set, with val images in class folders; False if they are sorted already."""
    val = root / places["val"]
    names = sorted(file.name for file in val.glob(FLAT))
    if not names:
        return False
    wnids = require_labels(root, names, root / places["train"])
    target.mkdir(parents=True, exist_ok=True)
    (target / "train").symlink_to(root / places["train"])
    for name in names:
        (target / "val" / wnids[name]).mkdir(parents=True, exist_ok=True)
        (target / "val" / wnids[name] / name).symlink_to(val / name)
    return True


def require_labels(root: Path, names: list[str], train: Path | None = None) -> dict[str, str]:
    """Return the wnid of each image, from the first list that is found; DataError without one."""
    for place in FOLDERS:
        for read in READERS:
            wnids = read(root / place, train or root / "train")
            if wnids and all(name in wnids for name in names):
                return wnids
    raise DataError(
        f"{root}: {len(names):,} val images lie in one folder, and no list tells their classes; "
        f"put {DEVKIT} (or {KAGGLE}, or {NUMBERED}) beside them"
    )


def _from_devkit(folder: Path, train: Path) -> dict[str, str]:
    """Read the devkit's list: line i has the number of val image i in meta.mat."""
    if (folder / DEVKIT).is_file():
        lists = _in_archive(folder / DEVKIT)
    else:
        files = [folder / "data" / name for name in (GROUND_TRUTH, META)]
        lists = {file.name: file.read_bytes() for file in files if file.is_file()}
    if len(lists) < 2:
        return {}
    try:
        (synsets,) = read_mat(io.BytesIO(lists[META]), "synsets", squeeze_me=True)
        wnids = {int(entry["ILSVRC2012_ID"]): str(entry["WNID"]) for entry in synsets}
        return {
            f"ILSVRC2012_val_{i:08d}.JPEG": _checked(wnids[int(number)])
            for i, number in enumerate(lists[GROUND_TRUTH].decode().split(), start=1)
        }
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(f"the devkit's lists cannot be read ({error}); get it again") from error


def _in_archive(file: Path) -> dict[str, bytes]:
    """Return the devkit's two lists by their names."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(file, "r:gz") as archive:
            for member in archive:
                name = Path(member.name).name
                if name in (GROUND_TRUTH, META) and member.isreg() and member.size < LARGEST:
                    content = archive.extractfile(member)
                    found[name] = content.read() if content else b""
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{file}: it is damaged ({error}); get it again") from error
    return found


def _from_kaggle(folder: Path, train: Path) -> dict[str, str]:
    if not (folder / KAGGLE).is_file():
        return {}
    with (folder / KAGGLE).open(newline="") as file:
        try:
            rows = list(csv.DictReader(file))
        except csv.Error as error:
            raise DataError(f"{folder / KAGGLE}: it is no CSV file ({error})") from error
    return {
        f"{row['ImageId']}.JPEG": _checked(row["PredictionString"].split()[0])
        for row in rows
        if row.get("ImageId") and row.get("PredictionString")
    }


def _from_numbers(folder: Path, train: Path) -> dict[str, str]:
    if not (folder / NUMBERED).is_file() or not train.is_dir():
        return {}
    wnids = class_names(train)
    lines = (folder / NUMBERED).read_text(errors="replace").splitlines()
    pairs = [pair for pair in map(str.split, lines) if len(pair) == 2 and pair[1].isdigit()]
    return {name: wnids[int(i)] for name, i in pairs if int(i) < len(wnids)}


def _checked(wnid: str) -> str:
    """Return a wnid; DataError for a word that must not name a folder."""
    if not (wnid.startswith("n") and wnid[1:].isdigit()):
        raise DataError(f"{wnid!r} in a list of val images is no class of ImageNet")
    return wnid


READERS: tuple[Callable[[Path, Path], dict[str, str]], ...] = (
    _from_devkit,
    _from_kaggle,
    _from_numbers,
)
