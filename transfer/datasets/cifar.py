"""CIFAR-10 and CIFAR-100, Krizhevsky 2009, from the published pickles or from image folders.

45,000 of the 50,000 training images are train and 5,000 val, the same number from each class by a
seeded draw. torchvision's class insists on the checksums of the published pickles, and runs
whatever code a pickle holds.
"""

import pickle
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from transfer.datasets.class_folders import class_names, read_class_folders
from transfer.datasets.expected import Sizes
from transfer.datasets.images import DataError, ImageArrays, Images
from transfer.datasets.splits import balanced_split


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where one of the two sets keeps what."""

    image_folder: str
    """Has train/CLASS/* and test/CLASS/*; read when there are no pickles."""
    pickle_folder: str
    train_files: tuple[str, ...]
    test_files: tuple[str, ...]
    names_file: str
    names_field: str
    labels_field: str


CIFAR10 = Layout(
    image_folder="cifar10",
    pickle_folder="cifar-10-batches-py",
    train_files=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test_files=("test_batch",),
    names_file="batches.meta",
    names_field="label_names",
    labels_field="labels",
)
CIFAR100 = Layout(
    image_folder="cifar100",
    pickle_folder="cifar-100-python",
    train_files=("train",),
    test_files=("test",),
    names_file="meta",
    names_field="fine_label_names",
    labels_field="fine_labels",
)


def read_cifar10(data: Path, split: str, sizes: Sizes) -> Images:
    """Reads cifar-10-batches-py, or cifar10/{train,test}/CLASS."""
    return _read(data, split, sizes, CIFAR10)


def read_cifar100(data: Path, split: str, sizes: Sizes) -> Images:
    """Reads cifar-100-python with its 100 fine labels, or cifar100/{train,test}/CLASS."""
    return _read(data, split, sizes, CIFAR100)


def _read(data: Path, split: str, sizes: Sizes, layout: Layout) -> Images:
    if (data / layout.pickle_folder).is_dir():
        files = layout.test_files if split == "test" else layout.train_files
        images = _read_pickles(data, files, layout)
    else:
        folder = data / layout.image_folder / ("test" if split == "test" else "train")
        classes = class_names(data / layout.image_folder / "train")
        images = read_class_folders(data, folder, classes)
    if split == "test":
        return images
    return balanced_split(images, split, val_per_class=sizes.per_class("val"))


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
    pixels = np.ascontiguousarray(flat.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    source = ImageArrays(pixels, np.array(names, dtype=np.bytes_))
    classes = _load(folder / layout.names_file)[layout.names_field]
    return Images(source, torch.tensor(labels, dtype=torch.int64), classes)


class _ArrayUnpickler(pickle.Unpickler):
    """Rebuilds plain values and numpy arrays, and refuses every other call."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("numpy") and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if module.startswith("numpy") and name == "_reconstruct":
            # the function is private in numpy and moves; an array names it wherever it lives
            return np.empty(0).__reduce__()[0]
        raise pickle.UnpicklingError(f"it calls {module}.{name}, which no CIFAR file does")


def _load(file: Path) -> dict[str, Any]:
    """One published pickle, written by Python 2."""
    try:
        content: dict[str, Any] = _ArrayUnpickler(
            BytesIO(file.read_bytes()), encoding="latin1"
        ).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError) as error:
        raise DataError(f"{file}: not a CIFAR pickle ({error}); unpack the set again") from error
    return content
