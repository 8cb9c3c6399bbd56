"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), from the published pickles or image folders.

A seeded draw, balanced over classes, divides the 50,000 training images into 45,000 train and 5,000
val images. torchvision's class is not used: it requires the checksums of the published pickles, and
it runs any code in them.
"""

import pickle
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from pretrain.running.reading import read_bytes
from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.images import ImageArrays, Images, class_names, read_class_folders
from transfer.datasets.info import DatasetInfo, SmallVersion, facts, info, source
from transfer.datasets.splits import with_val
from transfer.datasets.synthetic.labeled import PerClass, write_file
from transfer.datasets.synthetic.patterns import kinds_of_classes, paint

SIDE_PX = 32
JPEG = (".jpg", ".jpeg", ".jfif")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Folder, file and field names of one dataset; its small version's classes."""

    image_folder: str
    """Folder of {train,test}/CLASS/*, read if the pickles are missing."""
    pickle_folder: str
    train_files: tuple[str, ...]
    test_file: str
    names_file: str
    names_field: str
    labels_field: str
    small_classes: tuple[str, ...]
    small_kind: int
    """Pattern of the first class of the small version."""


LAYOUTS = {key: Layout(**fields) for key, fields in facts()["cifar"].items()}


def read_cifar(layout: Layout, data: Path, split: str, sizes: Sizes) -> Images:
    """Read the pickles (CIFAR-100: fine labels), or folders {train,test}/CLASS."""
    if (data / layout.pickle_folder).is_dir():
        files = (layout.test_file,) if split == "test" else layout.train_files
        images = _read_pickles(data, files, layout)
    else:
        folder = data / layout.image_folder / ("test" if split == "test" else "train")
        classes = class_names(data / layout.image_folder / "train")
        images = read_class_folders(data, folder, classes)
        names = (images.name(i).lower() for i in range(len(images)))
        if num_jpegs := sum(name.endswith(JPEG) for name in names):
            images.recoded = True
            images.notes += (
                f"{folder.relative_to(data)}: JPEG compression changed {num_jpegs} images. "
                "No result on them is compared with published numbers",
            )
    return with_val(images, split, sizes)


def _read_pickles(data: Path, files: tuple[str, ...], layout: Layout) -> Images:
    folder = data / layout.pickle_folder
    batches = [_load(folder / file) for file in files]
    flat = np.concatenate([np.asarray(batch["data"], dtype=np.uint8) for batch in batches])
    names = [
        f"{layout.pickle_folder}/{file}#{i}".encode()
        for file, batch in zip(files, batches, strict=True)
        for i in range(len(batch["data"]))
    ]
    labels = [int(label) for batch in batches for label in batch[layout.labels_field]]
    pixels = np.ascontiguousarray(flat.reshape(-1, 3, SIDE_PX, SIDE_PX).transpose(0, 2, 3, 1))
    source = ImageArrays(pixels, np.array(names, dtype=np.bytes_))
    classes = _load(folder / layout.names_file)[layout.names_field]
    return Images(source, np.array(labels, dtype=np.int64), classes)


class _ArrayUnpickler(pickle.Unpickler):
    """Safe unpickler: only plain values and numpy arrays."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("numpy") and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if module.startswith("numpy") and name == "_reconstruct":
            # this private function moves between numpy versions; an array refers to it
            return np.empty(0).__reduce__()[0]
        raise pickle.UnpicklingError(f"it calls {module}.{name}, which no CIFAR file does")


def _load(file: Path) -> dict[str, Any]:
    """Return the content of a published pickle, written by Python 2."""
    unpickler = _ArrayUnpickler(BytesIO(read_bytes(file)), encoding="latin1")
    try:
        content: dict[str, Any] = unpickler.load()
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError) as error:
        raise DataError(
            f"{file}: this is not a CIFAR pickle ({error}); unpack the dataset again"
        ) from error
    return content


def write_small(layout: Layout, per_class: PerClass, data: Path, rng: np.random.Generator) -> None:
    """Write the batches and class names.

    Each row of data contains the red, green and blue planes.
    """
    folder, count = data / layout.pickle_folder, per_class.classes
    kinds = kinds_of_classes(count, layout.small_kind)
    train_labels = np.arange(count * per_class.trainval) % count
    test_labels = np.arange(count * per_class.test) % count
    if layout is LAYOUTS["cifar10"]:
        test_labels = test_labels[::-1]
    batches = [*np.array_split(train_labels, len(layout.train_files)), test_labels]
    for file, labels in zip((*layout.train_files, layout.test_file), batches, strict=True):
        images = (paint(kinds[label], (SIDE_PX, SIDE_PX), rng) for label in labels)
        rows = np.stack([image.transpose(2, 0, 1).reshape(-1) for image in images])
        batch = {"data": rows, layout.labels_field: labels.tolist()}
        write_file(folder / file, pickle.dumps(batch, protocol=4))
    names = {layout.names_field: list(layout.small_classes)}
    write_file(folder / layout.names_file, pickle.dumps(names, protocol=4))


def _describe(key: str, layout: Layout) -> DatasetInfo:
    per_class = PerClass(classes=len(layout.small_classes))
    return info(
        key,
        read=partial(read_cifar, layout),
        small=SmallVersion(sizes=per_class.sizes, write=partial(write_small, layout, per_class)),
        sources=(source(key),),
    )


DATASETS = {key: _describe(key, layout) for key, layout in LAYOUTS.items()}
