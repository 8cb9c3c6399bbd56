"""The catalogue's entries of sets that are only tested on."""

from transfer.datasets.imagenet_c import read_imagenet_c100, read_imagenet_c100_made
from transfer.datasets.info import DatasetInfo
from transfer.datasets.objectnet import read_objectnet13

ROBUSTNESS_SETS = (
    DatasetInfo(
        key="imagenet_c100",
        title="ImageNet-C, the classes of ImageNet-100",
        folder="imagenet-c",
        num_classes=100,
        metric="top1",
        counts={"test": 19 * 5 * 5_000},
        open=read_imagenet_c100,
        how_to_get="From https://zenodo.org/records/2235448 unpack noise.tar, blur.tar, "
        "weather.tar, digital.tar and extra.tar into imagenet-c/, so that "
        "imagenet-c/gaussian_noise/1/WNID exists.",
    ),
    DatasetInfo(
        key="imagenet_c100_made",
        title="Corruptions of ImageNet-100 made here, a stand-in for ImageNet-C",
        folder="imagenet-c-made",
        num_classes=100,
        metric="top1",
        counts={"test": 0},
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
        "password is told there) into the data folder: objectnet-1.0/{images,mappings}.",
    ),
)
