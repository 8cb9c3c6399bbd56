"""Pascal VOC 2012 as a segmentation set, with the masks that SBD added.

Everingham et al., IJCV 2015; Hariharan et al., ICCV 2011 (SBD). The masks of test are not public:
test is VOC's val, trainval is "train_aug": VOC's train, and every image of SBD that is not in
VOC's val. VOC's own masks are taken where there are any. Val is a seeded draw from train_aug.
"""

from pathlib import Path

from transfer.datasets.expected import Sizes
from transfer.datasets.images import DataError
from transfer.datasets.sbd import AUGMENTED_LISTS, listed_ids, sbd_folder
from transfer.datasets.segmented import Segmented
from transfer.datasets.splits import drawn_split
from transfer.datasets.voc import CLASSES

FOLDER = "VOCdevkit/VOC2012"
CLASS_NAMES = ("background", *CLASSES)


def read_voc12_seg(data: Path, split: str, sizes: Sizes) -> Segmented:
    """Reads ImageSets/Segmentation, SegmentationClass, SegmentationClassAug and JPEGImages."""
    lists = data / FOLDER / "ImageSets" / "Segmentation"
    tested = listed_ids(lists / "val.txt")
    if split == "test":
        return _of(data, tested, frozenset(tested), "")
    own = listed_ids(lists / "train.txt")
    both = sorted({*own} & {*tested})
    if both:
        raise DataError(
            f"{lists}: {len(both)} images are in both train.txt and val.txt, first {both[0]}; "
            "expected none: the test would be on images that were learned"
        )
    added, source = _added(data, frozenset([*own, *tested]))
    trainval = _of(data, sorted([*own, *added]), frozenset(own), source)
    return drawn_split(trainval, split, sizes)


def _of(data: Path, image_ids: list[str], own: frozenset[str], source: str) -> Segmented:
    if not image_ids:
        raise DataError(f"no image is listed in {data / FOLDER}/ImageSets/Segmentation")
    return Segmented(
        data,
        [f"{FOLDER}/JPEGImages/{image_id}.jpg" for image_id in image_ids],
        [
            f"{FOLDER}/SegmentationClass{'' if image_id in own else 'Aug'}/{image_id}.png"
            for image_id in image_ids
        ],
        CLASS_NAMES,
        notes=[source] if source else [],
    )


def _added(data: Path, known: frozenset[str]) -> tuple[list[str], str]:
    """Images whose masks VOC does not publish, and one line on where these masks come from."""
    folder = data / FOLDER / "SegmentationClassAug"
    if not folder.is_dir():
        sbd = sbd_folder(data)
        if sbd is None:
            return [], "augmented masks: neither SegmentationClassAug nor SBD is there"
        return [], (
            f"augmented masks: SBD's .mat files in {sbd}, not converted yet; once: "
            f"python -m transfer convert-sbd --data {data}"
        )
    for name in AUGMENTED_LISTS:
        listing = data / FOLDER / "ImageSets" / "Segmentation" / name
        if listing.is_file():
            listed = set(listed_ids(listing)) - known
            return sorted(listed), f"augmented masks: SegmentationClassAug, listed in {name}"
    found = {file.stem for file in folder.glob("*.png")} - known
    source = "augmented masks: SegmentationClassAug, all files but VOC's own"
    if sbd_folder(data) is not None:
        source += (
            "; should python -m transfer convert-sbd have been interrupted, run it again: it has "
            "left no list"
        )
    return sorted(found), source
