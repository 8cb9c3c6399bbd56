"""CIFAR-10 and CIFAR-100, Krizhevsky 2009, from the published pickles or from image folders.

45,000 of the 50,000 training images are train and 5,000 val, the same number from each class by a
seeded draw. torchvision's class insists on the checksums of the published pickles, and runs
whatever code a pickle holds.
"""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.images import ImageArrays, Images, class_names, read_class_folders
from transfer.datasets.info import SmallVersion, info, source
from transfer.datasets.splits import with_val
from transfer.datasets.synthetic.labeled import PerClass, write_file
from transfer.datasets.synthetic.patterns import kinds_of_classes, paint

SIDE_PX = 32


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Names of the folders, files and fields of one of the two sets."""

    image_folder: str
    """Folder of train/CLASS/* and test/CLASS/*, which is read when there are no pickles."""
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
SMALL_CIFAR10, SMALL_CIFAR100 = PerClass(classes=6), PerClass(classes=8)


def read_cifar(layout: Layout, data: Path, split: str, sizes: Sizes) -> Images:
    """Read the pickles, of CIFAR-100 its 100 fine labels, or folders {train,test}/CLASS."""
    if (data / layout.pickle_folder).is_dir():
        files = layout.test_files if split == "test" else layout.train_files
        images = _read_pickles(data, files, layout)
    else:
        folder = data / layout.image_folder / ("test" if split == "test" else "train")
        classes = class_names(data / layout.image_folder / "train")
        images = read_class_folders(data, folder, classes)
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
    """Unpickler that rebuilds plain values and numpy arrays and refuses every other call."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("numpy") and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if module.startswith("numpy") and name == "_reconstruct":
            # the function is private in numpy and moves; an array names it wherever it lives
            return np.empty(0).__reduce__()[0]
        raise pickle.UnpicklingError(f"it calls {module}.{name}, which no CIFAR file does")


def _load(file: Path) -> dict[str, Any]:
    """Return the content of a published pickle, which Python 2 wrote."""
    unpickler = _ArrayUnpickler(BytesIO(file.read_bytes()), encoding="latin1")
    try:
        content: dict[str, Any] = unpickler.load()
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError) as error:
        raise DataError(
            f"{file}: this is not a pickle of CIFAR ({error}); unpack the set again"
        ) from error
    return content


def _write_small_cifar10(data: Path, rng: np.random.Generator) -> None:
    """Write five training batches, a test batch and the class names."""
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog"]
    small, folder = SMALL_CIFAR10, data / CIFAR10.pickle_folder
    train = np.arange(small.classes * small.trainval) % small.classes
    test = np.arange(small.classes * small.test)[::-1] % small.classes
    titles = [f"training batch {i} of 5" for i in range(1, 6)] + ["testing batch 1 of 1"]
    files = (*CIFAR10.train_files, *CIFAR10.test_files)
    for title, file, labels in zip(titles, files, [*np.array_split(train, 5), test], strict=True):
        batch = _small_batch(title, labels, names, 10, rng)
        _write_pickle(folder / file, batch | {"labels": labels.tolist()})
    meta = {"label_names": names, "num_cases_per_batch": 10_000, "num_vis": 3_072}
    _write_pickle(folder / CIFAR10.names_file, meta)


def _write_small_cifar100(data: Path, rng: np.random.Generator) -> None:
    """Write the training and the test images with fine and coarse labels, and the class names."""
    names = ["apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle"]
    folder = data / CIFAR100.pickle_folder
    for part, num_images in (("train", SMALL_CIFAR100.trainval), ("test", SMALL_CIFAR100.test)):
        labels = np.arange(len(names) * num_images) % len(names)
        batch = _small_batch(f"{part}ing batch 1 of 1", labels, names, 11, rng)
        coarse = {"fine_labels": labels.tolist(), "coarse_labels": (labels // 2).tolist()}
        _write_pickle(folder / part, batch | coarse)
    groups = [f"group_{i}" for i in range((len(names) + 1) // 2)]
    _write_pickle(folder / "meta", {"fine_label_names": names, "coarse_label_names": groups})


def _small_batch(
    title: str,
    labels: NDArray[np.int64],
    names: Sequence[str],
    first_kind: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return the fields that both sets share; a row of data is the red, green, then blue plane."""
    kinds = kinds_of_classes(len(names), first_kind)
    images = (paint(kinds[label], (SIDE_PX, SIDE_PX), rng) for label in labels)
    rows = [image.transpose(2, 0, 1).reshape(-1) for image in images]
    files = [f"{names[label]}_s_{i:06d}.png" for i, label in enumerate(labels)]
    return {"batch_label": title, "data": np.stack(rows), "filenames": files}


def _write_pickle(file: Path, content: dict[str, Any]) -> None:
    write_file(file, pickle.dumps(content, protocol=4))


DATASETS = {
    key: info(
        key,
        read=partial(read_cifar, layout),
        small=SmallVersion(sizes=per_class.sizes, write=write),
        sources=(source(key),),
    )
    for key, layout, per_class, write in (
        ("cifar10", CIFAR10, SMALL_CIFAR10, _write_small_cifar10),
        ("cifar100", CIFAR100, SMALL_CIFAR100, _write_small_cifar100),
    )
}
