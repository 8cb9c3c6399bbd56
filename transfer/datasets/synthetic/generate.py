"""Generate small, learnable versions of all datasets for demo and tests.

Each dataset's file contains its writer. The datasets share the patterns of `patterns.py`; each uses
some of them as classes. `pretrain/` contains unlabeled images of all patterns, which are not in any
dataset. `small-data.json` lists the written datasets.
"""

import shutil
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pretrain.running.atomic_files import explain_write_errors
from transfer.datasets.catalog import DATASETS, dataset_info
from transfer.datasets.expected import DataError, mark_small, small_sizes
from transfer.datasets.synthetic.labeled import write_file
from transfer.datasets.synthetic.patterns import KINDS, draw_size_px, jpeg, paint

POOL_FOLDER = "pretrain"
POOL_FILES = {f"{i:05d}.jpg" for i in range(2_000)}


def generate(data: Path, *, keys: Sequence[str] | None = None, seed: int = 0) -> None:
    """Write small versions of datasets to `data`.

    keys: dataset keys, or "pretrain" for unlabeled images; None: all. Earlier generated versions
    are replaced; a folder of any other origin is an error.
    """
    data.mkdir(parents=True, exist_ok=True)
    to_write: list[str] = []
    for key in [*DATASETS, POOL_FOLDER] if keys is None else keys:
        to_write += () if key == POOL_FOLDER else dataset_info(key).small.needs
        to_write.append(key)
    for key in dict.fromkeys(to_write):
        # each dataset has its own random numbers, so that it does not depend on the others
        rng = np.random.default_rng([seed, zlib.crc32(key.encode())])
        with explain_write_errors(data / key):
            _write_set(data, key, rng)


def _write_set(data: Path, key: str, rng: np.random.Generator) -> None:
    """Write a dataset atomically, by moving a temporary folder.

    Raises DataError if its folder has another origin. Does nothing if it only uses other datasets'
    files.
    """
    info = None if key == POOL_FOLDER else dataset_info(key)
    name, write = (info.folder, info.small.write) if info else (POOL_FOLDER, _write_pool)
    if write is None:
        return
    folder = data / name
    if folder.exists() and not _is_drawn(data, key):
        raise DataError(
            f"{folder} exists and was not generated; generate into another folder, or move it away"
        )
    with tempfile.TemporaryDirectory(dir=data, prefix=".generating-") as staging:
        write(Path(staging), rng)
        if info:
            _mark(data, key)
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        (Path(staging) / name).rename(folder)


def _is_drawn(data: Path, key: str) -> bool:
    """Return whether `generate` wrote the dataset, or the unlabeled images."""
    if key != POOL_FOLDER:
        return key in small_sizes(data) and small_sizes(data)[key].drawn
    return {entry.name for entry in (data / POOL_FOLDER).iterdir()} == POOL_FILES


def _mark(data: Path, written: str) -> None:
    """Add a dataset, and all that are now complete, to `small-data.json`."""
    mark_small(data, written, dataset_info(written).small.sizes)
    listed = {key for key, sizes in small_sizes(data).items() if sizes.drawn}
    for key, info in DATASETS.items():
        is_user = info.small.write is None and written in info.small.needs
        if is_user and listed.issuperset(info.small.needs):
            mark_small(data, key, info.small.sizes)


def _write_pool(data: Path, rng: np.random.Generator) -> None:
    for i, name in enumerate(sorted(POOL_FILES)):
        image = paint(i % len(KINDS), draw_size_px(rng), rng)
        write_file(data / POOL_FOLDER / name, jpeg(image))
