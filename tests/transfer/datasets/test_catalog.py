"""The catalog agrees with the published table and every generated layout."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from PIL import Image
from torchvision import datasets as torchvision_datasets

from transfer.datasets.catalog import (
    DATASETS,
    SPLITS,
    expected_sizes,
    open_any,
    open_split,
)
from transfer.datasets.images import ImageFiles
from transfer.datasets.synthetic.voc import CLASSES

# classes, metric, train, val, test of LORAC's Table II and of the sets' own papers
PUBLISHED = {
    "aircraft": (100, "mean_per_class", 3_334, 3_333, 3_333),
    "birdsnap": (500, "top1", 35_447, 5 * 500, 5 * 500),
    "caltech101": (102, "mean_per_class", 25 * 102, 5 * 102, 9_144 - 30 * 102),
    "cars": (196, "top1", 6_494, 1_650, 8_041),
    "cifar10": (10, "top1", 45_000, 5_000, 10_000),
    "cifar100": (100, "top1", 45_000, 5_000, 10_000),
    "dtd": (47, "top1", 40 * 47, 40 * 47, 40 * 47),
    "flowers": (102, "mean_per_class", 1_020, 1_020, 6_149),
    "food": (101, "top1", 68_175, 7_575, 250 * 101),
    "pets": (37, "mean_per_class", 2_940, 740, 3_669),
    "places365": (365, "top1", 1_803_460 - 36_500, 36_500, 100 * 365),
    "sun397": (397, "top1", 40 * 397, 10 * 397, 50 * 397),
    "in1k": (1_000, "top1", 1_281_167 - 50_000, 50_000, 50 * 1_000),
    "in100": (100, "top1", 126_689 - 5_000, 5_000, 50 * 100),
    # SimCLR's lists; the part to be held out is ours
    "in1k_1pct": (1_000, "top1", 12_811 - 2 * 1_000, 2 * 1_000, 50 * 1_000),
    "in1k_10pct": (1_000, "top1", 128_116 - 26 * 1_000, 26 * 1_000, 50 * 1_000),
    # a tenth of iNaturalist's 265,213 training images is tested on, as LooC has it
    "inat1k": (1_010, "top1", 265_213 - 26_521 - 3 * 1_010, 3 * 1_010, 3_030 + 26_521),
    "cub200": (200, "top1", 5_994 - 5 * 200, 5 * 200, 5_794),
    "voc07": (20, "mAP", 2_501, 5_011 - 2_501, 4_952),
    "voc12": (20, "mAP", 5_717 - 572, 572, 5_823),
    # of VOC's and COCO's own pages; detection
    "voc0712": (20, "AP", 16_551 - 1_000, 1_000, 4_952),
    # of the papers that use them: VOC's and SBD's masks
    "voc12_seg": (21, "mIoU", 10_582 - 1_000, 1_000, 1_449),
    "coco17": (80, "AP", 118_287 - 5_000, 5_000, 5_000),
    "coco17_keypoints": (1, "AP", 118_287 - 5_000, 5_000, 5_000),
}
TEST_ONLY = ("imagenet_c100", "objectnet13")
KEYS = tuple(PUBLISHED)
ONE_LABEL = tuple(key for key in KEYS if not key.startswith(("voc", "coco")))


def test_catalogue_agrees_with_the_published_table() -> None:
    result = {
        key: (info.num_classes, info.metric, *(info.counts[s] for s in ("train", "val", "test")))
        for key, info in DATASETS.items()
        if key not in TEST_ONLY
    }
    assert result == PUBLISHED


def test_generated_splits_are_disjoint_and_balanced(
    small_data: Path, subtests: pytest.Subtests
) -> None:
    for key in KEYS:
        with subtests.test(key=key):
            sizes = expected_sizes(key, small_data)
            splits = {split: open_any(key, small_data, split) for split in SPLITS}
            assert {split: len(images) for split, images in splits.items()} == sizes.counts
            assert len(splits["test"].class_names) == sizes.classes
            names = {s: [pool.name(i) for i in range(len(pool))] for s, pool in splits.items()}
            assert sorted(names["train"] + names["val"]) == sorted(names["trainval"])
            disjoint = names["trainval"] + names["test"]
            assert len(set(disjoint)) == len(disjoint)
            if key in ONE_LABEL and key != "cars":
                counts = torch.bincount(open_split(key, small_data, "val").labels)
                assert counts.tolist() == [sizes.counts["val"] // sizes.classes] * sizes.classes


def test_labels_are_those_that_the_generator_drew(
    small_data: Path, subtests: pytest.Subtests
) -> None:
    for key in [key for key in ONE_LABEL if not key.startswith(("in1", "cifar"))]:
        with subtests.test(key=key):
            for split in ("trainval", "test"):
                images = open_split(key, small_data, split)
                assert isinstance(images.source, ImageFiles)
                for i, label in enumerate(images.labels.tolist()):
                    with Image.open(small_data / images.name(i)) as image:
                        assert image.info["comment"].decode() == f"class {label}"


def test_imagenet_classes_are_the_folders_in_alphabetical_order(small_data: Path) -> None:
    images = open_split("in1k", small_data, "test")
    folders = [Path(images.name(i)).parent.name for i in range(len(images))]
    assert [images.class_names[label] for label in images.labels] == folders
    assert list(images.class_names) == sorted(set(folders))
    thousand = set(open_split("in1k", small_data, "train").class_names)
    hundred = set(open_split("in100", small_data, "train").class_names)
    assert thousand - hundred == {"n01440764", "n15075141"}


def test_voc_labels_are_those_of_the_annotations(small_data: Path) -> None:
    for key, year in (("voc07", "2007"), ("voc12", "2012")):
        folder = small_data / "VOCdevkit" / f"VOC{year}" / "Annotations"
        for split in ("trainval", "test"):
            images = open_split(key, small_data, split)
            rows = []
            for i in range(len(images)):
                tree = ElementTree.parse(folder / f"{Path(images.name(i)).stem}.xml")
                marks: dict[str | None, set[str | None]] = {name: set() for name in CLASSES}
                for thing in tree.iter("object"):
                    marks[thing.findtext("name")].add(thing.findtext("difficult"))
                rows.append([1 if "0" in m else 0 if "1" in m else -1 for m in marks.values()])
            assert images.labels.tolist() == rows
            assert {1, 0, -1} == set(images.labels.unique().tolist())


def test_torchvision_reads_the_same_flowers_and_places(
    small_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchvision.datasets.flowers102.check_integrity", lambda *_, **__: True)
    monkeypatch.setattr("torchvision.datasets.places365.check_integrity", lambda *_, **__: True)
    flowers = torchvision_datasets.Flowers102(small_data, split="test")
    ours = open_split("flowers", small_data, "test")
    names = [Path(ours.name(i)).name for i in range(len(ours))]
    assert names == [file.name for file in flowers._image_files]
    assert ours.labels.tolist() == flowers._labels
    places365 = torchvision_datasets.Places365(small_data / "places365", split="val", small=True)
    ours = open_split("places365", small_data, "test")
    files = [str(small_data / ours.name(i)) for i in range(len(ours))]
    assert files == [file for file, _ in places365.imgs]
    assert ours.labels.tolist() == places365.targets
