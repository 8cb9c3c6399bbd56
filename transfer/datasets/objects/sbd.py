"""SBD's masks as PNG files: python -m transfer convert-sbd, once.

Hariharan et al., "Semantic contours from inverse detectors", ICCV 2011: one MATLAB file per image.
"""

from pathlib import Path

import numpy as np

from pretrain.running import stop
from pretrain.running.atomic_files import write_whole
from pretrain.running.console import progress
from transfer.datasets.expected import DataError
from transfer.datasets.info import source
from transfer.datasets.mat_files import read_mat
from transfer.datasets.segmented import Mask, write_mask

FOLDERS = ("benchmark_RELEASE/dataset", "sbd", "SBD/dataset", "VOCdevkit/benchmark_RELEASE/dataset")
"""Folders below the data folder into which SBD is usually unpacked."""
AUGMENTED_LISTS = ("trainaug.txt", "train_aug.txt")
"""Names of the list of images that comes with SegmentationClassAug."""
HOW_TO_GET = (
    "Unpack benchmark.tgz from https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/"
    "semantic_contours/benchmark.tgz into the data folder (benchmark_RELEASE/dataset/cls/*.mat)."
)


def sbd_folder(data: Path) -> Path | None:
    """Return the folder that holds cls/*.mat, or None if there is none."""
    folders = (data / name for name in FOLDERS)
    return next((folder for folder in folders if (folder / "cls").is_dir()), None)


def read_sbd_mask(file: Path) -> Mask:
    """Return the classes (H, W) of a file in cls/; DataError if it holds none."""
    try:
        (content,) = read_mat(file, "GTcls")
        classes = np.asarray(content[0, 0]["Segmentation"])
        mask = classes.astype(np.uint8)
        if classes.ndim != 2 or not np.array_equal(mask, classes):
            raise ValueError(
                f"the mask is {classes.dtype} of shape {classes.shape}; expected (H, W) with "
                f"ids from 0 to 255"
            )
        return mask
    except (LookupError, ValueError, TypeError) as error:
        raise DataError(
            f"{file}: holds no GTcls.Segmentation ({type(error).__name__}: {error}). {HOW_TO_GET}"
        ) from error


def convert_sbd(data: Path, sbd: Path | None = None) -> int:
    """Write SegmentationClassAug and its list, trainaug.txt, from SBD; return the number of masks.

    Masks and lines of the list that exist are kept. The list is written after all masks.
    """
    folder = sbd or sbd_folder(data)
    if folder is None or not (folder / "cls").is_dir():
        where = folder or " or ".join(str(data / name) for name in FOLDERS)
        raise DataError(f"SBD is not there: no cls/*.mat in {where}. {HOW_TO_GET}")
    voc = data / "VOCdevkit" / "VOC2012"
    lists, masks = voc / "ImageSets" / "Segmentation", voc / "SegmentationClassAug"
    own, tested = (read_ids(lists / f"{name}.txt") for name in ("train", "val"))
    to_add = sorted({f.stem for f in (folder / "cls").glob("*.mat")} - {*own, *tested})
    masks.mkdir(exist_ok=True)
    with progress("masks", "SBD", len(to_add)) as counter:
        for image_id in to_add:
            stop.exit_if_requested()
            file = masks / f"{image_id}.png"
            if not file.exists():
                write_mask(file, read_sbd_mask(folder / "cls" / f"{image_id}.mat"))
            counter.add(1)
    before = [
        i for name in AUGMENTED_LISTS if (lists / name).exists() for i in read_ids(lists / name)
    ]
    image_ids = sorted({*own, *to_add, *before} - {*tested})
    list_file = lists / AUGMENTED_LISTS[0]
    write_whole(list_file, "".join(f"{image_id}\n" for image_id in image_ids).encode(), "--data")
    return len(to_add)


def read_ids(list_file: Path) -> list[str]:
    """Return the image ids of a list; a line is an id, or the paths of an image and its mask."""
    lines = list_file.read_text().splitlines()
    return [Path(line.split()[0]).stem for line in lines if line.strip()]


def finish_conversion(data: Path) -> None:
    """Convert SBD where that was not finished; do nothing without SBD, or without VOC 2012."""
    lists = data / "VOCdevkit" / "VOC2012" / "ImageSets" / "Segmentation"
    listed = any((lists / name).exists() for name in AUGMENTED_LISTS)
    if sbd_folder(data) is not None and lists.is_dir() and not listed:
        convert_sbd(data)


SOURCE = source("sbd", finish=finish_conversion)
