"""Small versions of every data set, with a signal that can be learned, for the demo and the tests.

The file of each data set writes its own. The sets share the kinds of `patterns.py`; each uses some
of them as classes. `pretrain/` holds images of all kinds without labels, which are in no set.
`small-data.json` lists what was written.
"""

import shutil
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from pretrain.running.atomic_files import explain_write_errors
from transfer.datasets.catalog import DATASETS, dataset_info
from transfer.datasets.expected import DataError, mark_small, small_sizes
from transfer.datasets.synthetic.patterns import KINDS, draw_size_px, jpeg, paint

POOL_FOLDER = "pretrain"
POOL_IMAGES = 2_000


def generate(data: Path, *, keys: Sequence[str] | None = None, seed: int = 0) -> None:
    """Write small versions of these sets below `data`; the key "pretrain" gives unlabeled images.

    Without keys, everything is written. A version that `generate` wrote before is replaced; a
    folder of any other origin is an error.
    """
    requested = [*DATASETS, POOL_FOLDER] if keys is None else list(keys)
    data.mkdir(parents=True, exist_ok=True)
    to_write = [part for key in requested for part in _entry_keys(key)]
    for key in dict.fromkeys(to_write):
        # each set has random numbers of its own, so that it is the same whatever else is written
        rng = np.random.default_rng([seed, zlib.crc32(key.encode())])
        write = None if key == POOL_FOLDER else dataset_info(key).small.write
        with explain_write_errors(data / key):
            if write is None:
                _write_pool(data / POOL_FOLDER, rng)
            else:
                _write_set(data, key, write, rng)


def _entry_keys(key: str) -> tuple[str, ...]:
    """Return the keys under which the files of a set are written."""
    if key == POOL_FOLDER:
        return (key,)
    small = dataset_info(key).small
    return small.needs if small.write is None else (*small.needs, key)


def _write_set(
    data: Path,
    key: str,
    write: Callable[[Path, np.random.Generator], None],
    rng: np.random.Generator,
) -> None:
    """Write a set to a temporary folder and move it, so that an interruption leaves no half set."""
    folder = dataset_info(key).folder
    _refuse_foreign(data, key, folder)
    with tempfile.TemporaryDirectory(dir=data, prefix=".generating-") as staging:
        write(Path(staging), rng)
        _mark(data, key)
        shutil.rmtree(data / folder, ignore_errors=True)
        (data / folder).parent.mkdir(parents=True, exist_ok=True)
        (Path(staging) / folder).rename(data / folder)


def _mark(data: Path, written: str) -> None:
    """Enter a set into `small-data.json`, and every set whose files all belong to entered sets."""
    mark_small(data, written, dataset_info(written).small.sizes)
    entered = {key for key, sizes in small_sizes(data).items() if sizes.drawn}
    for key, info in DATASETS.items():
        reads_it = info.small.write is None and written in info.small.needs
        if reads_it and entered.issuperset(info.small.needs):
            mark_small(data, key, info.small.sizes)


def _write_pool(folder: Path, rng: np.random.Generator) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(POOL_IMAGES):
        image = paint(i % len(KINDS), draw_size_px(rng), rng)
        (folder / f"{i:05d}.jpg").write_bytes(jpeg(image))


def _refuse_foreign(data: Path, key: str, folder: str) -> None:
    entry = small_sizes(data).get(key)
    if (data / folder).exists() and not (entry and entry.drawn):
        raise DataError(
            f"{data / folder} exists and was not generated; "
            "generate into another folder, or move it away"
        )
