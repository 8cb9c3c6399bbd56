"""SBD's masks as PNG files: python -m transfer convert-sbd, once.

Hariharan et al., "Semantic contours from inverse detectors", ICCV 2011: one MATLAB file per image.
"""

from pathlib import Path

import numpy as np
import scipy.io
from scipy.io.matlab import MatReadError

from transfer import stop
from transfer.console import progress
from transfer.datasets.images import DataError
from transfer.datasets.segmented import Mask, write_mask
from transfer.whole_file import write_whole

FOLDERS = ("benchmark_RELEASE/dataset", "sbd", "SBD/dataset", "VOCdevkit/benchmark_RELEASE/dataset")
"""Below the data folder: where SBD is usually unpacked."""
AUGMENTED_LISTS = ("trainaug.txt", "train_aug.txt")
"""By either name it comes with SegmentationClassAug; without it, the masks that are there count."""
NOT_A_MASK = (MatReadError, NotImplementedError, OSError, LookupError, ValueError, TypeError)
"""What scipy raises on other and on damaged files."""
HOW_TO_GET = (
    "Unpack benchmark.tgz from https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/"
    "semantic_contours/benchmark.tgz into the data folder (benchmark_RELEASE/dataset/cls/*.mat)."
)


def sbd_folder(data: Path) -> Path | None:
    """Where cls/*.mat lie, if they are there."""
    found = (data / name for name in FOLDERS)
    return next((folder for folder in found if (folder / "cls").is_dir()), None)


def read_sbd_mask(file: Path) -> Mask:
    """(H, W): classes of a file in cls/; DataError if it holds none."""
    try:
        content = scipy.io.loadmat(file, variable_names=["GTcls"])
        classes = np.asarray(content["GTcls"][0, 0]["Segmentation"])
        mask = classes.astype(np.uint8)
        if classes.ndim != 2 or not np.array_equal(mask, classes):
            raise ValueError(f"{classes.dtype} of shape {classes.shape}, or no ids from 0 to 255")
        return mask
    except NOT_A_MASK as error:
        raise DataError(
            f"{file}: holds no GTcls.Segmentation ({type(error).__name__}: {error}). {HOW_TO_GET}"
        ) from error


def convert_sbd(data: Path, sbd: Path | None = None) -> int:
    """Write SegmentationClassAug and its list, trainaug.txt, from SBD's files; how many masks.

    What is there already is left, in the list too, which is written only after all masks.
    """
    folder = sbd or sbd_folder(data)
    if folder is None or not (folder / "cls").is_dir():
        where = folder or " or ".join(str(data / name) for name in FOLDERS)
        raise DataError(f"SBD is not there: no cls/*.mat in {where}. {HOW_TO_GET}")
    voc = data / "VOCdevkit" / "VOC2012"
    lists, masks = voc / "ImageSets" / "Segmentation", voc / "SegmentationClassAug"
    own, tested = (listed_ids(lists / f"{name}.txt") for name in ("train", "val"))
    wanted = sorted({f.stem for f in (folder / "cls").glob("*.mat")} - {*own, *tested})
    masks.mkdir(exist_ok=True)
    with progress("masks", "SBD", len(wanted)) as counter:
        for image_id in wanted:
            stop.leave_if_asked()
            file = masks / f"{image_id}.png"
            if not file.exists():
                write_mask(file, read_sbd_mask(folder / "cls" / f"{image_id}.mat"))
            counter.add(1)
    before = [
        i for name in AUGMENTED_LISTS if (lists / name).exists() for i in listed_ids(lists / name)
    ]
    listed = sorted({*own, *wanted, *before} - {*tested})
    listing = lists / AUGMENTED_LISTS[0]
    write_whole(listing, "".join(f"{image_id}\n" for image_id in listed).encode(), "--data")
    return len(wanted)


def listed_ids(listing: Path) -> list[str]:
    """Of the images in a list: an id per line, or the paths of an image and its mask."""
    lines = listing.read_text().splitlines()
    return [Path(line.split()[0]).stem for line in lines if line.strip()]
