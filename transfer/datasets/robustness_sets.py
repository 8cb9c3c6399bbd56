"""The catalogue's entries of sets that are only tested on."""

from transfer.datasets.imagenet_c import (
    read_imagenet_c100,
    told_of_imagenet_c,
    unpacked_counts,
)
from transfer.datasets.info import DatasetInfo
from transfer.datasets.made_corruptions import read_imagenet_c100_made, told_of_made
from transfer.datasets.objectnet import read_objectnet13

ROBUSTNESS_SETS = (
    DatasetInfo(
        key="imagenet_c100",
        title="ImageNet-C, the classes of ImageNet-100",
        folder="imagenet-c",
        num_classes=100,
        metric="top1",
        counts={"test": 19 * 5 * 5_000},
        counts_of=unpacked_counts,
        told_of=told_of_imagenet_c,
        open=read_imagenet_c100,
        how_to_get="From https://zenodo.org/records/2235448 unpack noise.tar, blur.tar, "
        "weather.tar, digital.tar and extra.tar into imagenet-c/, so that "
        "imagenet-c/gaussian_noise/1/WNID exists; without extra.tar there are results of fifteen "
        "corruptions, not of all nineteen.",
    ),
    DatasetInfo(
        key="imagenet_c100_made",
        title="Corruptions of ImageNet-100 made here, a stand-in for ImageNet-C",
        folder="imagenet-c-made",
        num_classes=100,
        metric="top1",
        counts={"test": 18 * 5 * 5_000},
        told_of=told_of_made,
        open=read_imagenet_c100_made,
        how_to_get='With ImageNet-100 in the data folder and the extra "corruptions" installed: '
        "python -m transfer make-corruptions --data DATA.",
    ),
    DatasetInfo(
        key="objectnet13",
        title="ObjectNet, thirteen classes of ImageNet-100",
        folder="objectnet-1.0",
        num_classes=13,
        metric="top1",
        counts={"test": 0},
        open=read_objectnet13,
        how_to_get="Unpack objectnet-1.0.zip from https://objectnet.dev/download.html (its "
        "password is told there) into the data folder: objectnet-1.0/{images,mappings}. All 313 "
        "classes: only their total is published, by which a half-unpacked set is known.",
    ),
)
