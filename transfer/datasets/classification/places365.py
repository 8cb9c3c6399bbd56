"""Places365-standard, Zhou et al., PAMI 2018.

The labels of its test images are not public: test is the official val split, and val is a seeded
draw of 100 images per class from the training images. torchvision's class insists on the checksums
of the complete lists, which a small copy cannot have.
"""

from pathlib import Path

from transfer.datasets.expected import Sizes
from transfer.datasets.images import DataError, Images, image_files
from transfer.datasets.info import DatasetInfo, split_counts
from transfer.datasets.source import Archive, Part, Source
from transfer.datasets.splits import balanced_split
from transfer.datasets.synthetic.files import write_file, write_lines
from transfer.datasets.synthetic.labeled import Draw, PerClass, labeled_jpegs

TRAIN_FOLDERS = ("data_256_standard", "data_256", "data_large_standard", "data_large")
"""The 256-pixel version is preferred; the second name is what its archive unpacks to."""
VAL_FOLDERS = ("val_256", "val_large")


def read_places365(data: Path, split: str, sizes: Sizes) -> Images:
    """Read places365/categories_places365.txt, the lists beside it and the images they name."""
    folder = data / "places365"
    classes = [name for name, _ in _read_pairs(folder / "categories_places365.txt")]
    list_name, choices = (
        ("places365_val.txt", VAL_FOLDERS)
        if split == "test"
        else ("places365_train_standard.txt", TRAIN_FOLDERS)
    )
    prefix = f"places365/{_first_existing(folder, choices)}"
    pairs = _read_pairs(folder / list_name)
    names = [f"{prefix}/{name.lstrip('/')}" for name, _ in pairs]
    images = image_files(data, names, [label for _, label in pairs], classes)
    if split == "test":
        return images
    return balanced_split(images, split, val_per_class=sizes.per_class("val"))


def _read_pairs(file: Path) -> list[tuple[str, int]]:
    """Return the lines of a file, each a name and a number."""
    with file.open() as lines:
        return [(name, int(number)) for name, number in (line.split() for line in lines)]


def _first_existing(folder: Path, choices: tuple[str, ...]) -> str:
    for name in choices:
        if (folder / name).is_dir():
            return name
    raise DataError(f"{folder}: none of the image folders {', '.join(choices)} is there")


def _write_small(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write the images, the list of categories and the lists of files and labels."""
    folder = data / "places365"
    classes = ["/a/airfield", "/a/alley", "/b/bridge", "/c/castle", "/f/field/wild", "/s/street"]
    classes = classes[: per_class.classes]
    numbered = [f"{name} {label}" for label, name in enumerate(classes)]
    write_lines(folder / "categories_places365.txt", numbered)
    lines = []
    for label, name in enumerate(classes):
        for i in range(per_class.trainval):
            path = f"{name}/{i + 1:08d}.jpg"
            write_file(folder / "data_256_standard" / path.lstrip("/"), draw(label))
            lines.append(f"{path} {label}")
    write_lines(folder / "places365_train_standard.txt", lines)
    lines = []
    for i in range(per_class.test * per_class.classes):
        name = f"Places365_val_{i + 1:08d}.jpg"
        write_file(folder / "val_256" / name, draw(i * 7 % per_class.classes))
        lines.append(f"{name} {i * 7 % per_class.classes}")
    write_lines(folder / "places365_val.txt", lines)


SERVER = "http://data.csail.mit.edu/places/places365/"
# addresses and MD5: torchvision 0.29 (places365.py); sizes: TensorFlow Datasets
SOURCE = Source(
    key="places365",
    folder="places365",
    archives=(
        Archive(
            name="filelist_places365-standard.tar",
            urls=(f"{SERVER}filelist_places365-standard.tar",),
            num_bytes=67_498_496,
            checksum="md5:35a0585fee1fa656440f3ab298f8479c",
        ),
        Archive(
            name="train_256_places365standard.tar",
            urls=(f"{SERVER}train_256_places365standard.tar",),
            num_bytes=26_103_685_120,
            checksum="md5:53ca1c756c3d1e7809517cc47c5561c5",
        ),
        Archive(
            name="val_256.tar",
            urls=(f"{SERVER}val_256.tar",),
            num_bytes=525_158_400,
            checksum="md5:e27b17d8d44f4af9a78502beb927f808",
        ),
    ),
    terms="unknown",
    terms_url="http://places2.csail.mit.edu/download.html",
    parts=(
        Part(path="data_256_standard", elsewhere=("data_256",), holds="a/airfield"),
        Part(path="val_256", holds="Places365_val_*.jpg"),
        Part(path="categories_places365.txt"),
        Part(path="places365_train_standard.txt"),
        Part(path="places365_val.txt"),
    ),
    checked_as=("places365",),
)

DATASETS = {
    "places365": DatasetInfo(
        title="Places365-standard",
        folder="places365",
        num_classes=365,
        metric="top1",
        counts=split_counts(1_766_960, 36_500, 36_500),
        read=read_places365,
        how_to_get="From http://places2.csail.mit.edu/download.html unpack "
        "filelist_places365-standard.tar, train_256_places365standard.tar (rename "
        "data_256 to data_256_standard) and val_256.tar into places365/.",
        small=labeled_jpegs(PerClass(classes=5), first_kind=8, write=_write_small),
        sources=(SOURCE,),
    )
}
