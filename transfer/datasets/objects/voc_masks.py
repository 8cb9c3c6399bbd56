"""Pascal VOC 2012 as a segmentation set, with the masks that SBD added.

Everingham et al., IJCV 2015; Hariharan et al., ICCV 2011 (SBD). The masks of test are not public:
test is VOC's val, trainval is "train_aug": VOC's train, and every image of SBD that is not in
VOC's val. Where VOC has a mask of its own, that one is read. val is a seeded draw from train_aug.
"""

from pathlib import Path

from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.info import SmallVersion, info, split_counts
from transfer.datasets.objects.sbd import AUGMENTED_LISTS, SOURCE, read_ids, sbd_folder
from transfer.datasets.objects.voc import VOC12
from transfer.datasets.objects.voc_classes import CLASSES
from transfer.datasets.segmented import Segmented
from transfer.datasets.splits import uniform_split_by_sizes
from transfer.datasets.synthetic.voc import ADDED_MASKS, MASKED

FOLDER = "VOCdevkit/VOC2012"
CLASS_NAMES = ("background", *CLASSES)
SMALL_VAL = 30
"""Images of the small set that are held out as val."""


def read_voc12_seg(data: Path, split: str, sizes: Sizes) -> Segmented:
    """Read ImageSets/Segmentation, SegmentationClass, SegmentationClassAug and JPEGImages."""
    lists = data / FOLDER / "ImageSets" / "Segmentation"
    tested = read_ids(lists / "val.txt")
    if split == "test":
        return _images_and_masks(data, tested, frozenset(tested), "")
    own = read_ids(lists / "train.txt")
    both = sorted({*own} & {*tested})
    if both:
        raise DataError(
            f"{lists}: {len(both)} images are in both train.txt and val.txt, first {both[0]}; "
            "expected none: the test would be on images that were learned"
        )
    added, source = _added_ids(data, frozenset([*own, *tested]))
    trainval = _images_and_masks(data, sorted([*own, *added]), frozenset(own), source)
    return uniform_split_by_sizes(trainval, split, sizes)


def _images_and_masks(
    data: Path, image_ids: list[str], own: frozenset[str], source: str
) -> Segmented:
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


def _added_ids(data: Path, known: frozenset[str]) -> tuple[list[str], str]:
    """Return the images whose masks VOC does not publish, and one line on where these come from."""
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
        list_file = data / FOLDER / "ImageSets" / "Segmentation" / name
        if list_file.is_file():
            added = set(read_ids(list_file)) - known
            return sorted(added), f"augmented masks: SegmentationClassAug, listed in {name}"
    added = {file.stem for file in folder.glob("*.png")} - known
    source = "augmented masks: SegmentationClassAug, all files but VOC's own"
    if sbd_folder(data) is not None:
        source += (
            "; should python -m transfer convert-sbd have been interrupted, run it again: it has "
            "left no list"
        )
    return sorted(added), source


def _small_sizes() -> Sizes:
    trainval = MASKED["train"] + ADDED_MASKS
    counts = split_counts(trainval - SMALL_VAL, SMALL_VAL, MASKED["val"])
    return Sizes(classes=len(CLASS_NAMES), counts=counts, drawn=True)


DATASETS = {
    "voc12_seg": info(
        "voc12_seg",
        read=read_voc12_seg,
        small=SmallVersion(sizes=_small_sizes(), needs=("voc12",)),
        sources=(VOC12, SOURCE),
    ),
}
