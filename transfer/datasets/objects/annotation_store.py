"""Annotations of a detection set, parsed once per machine and mapped by all processes.

COCO's training annotations are 450 MB of JSON, which take every process of a run half a minute and
three gigabytes. The first process that reads them writes their arrays to the cache, under a hash of
the file's content. It and all others map that file, so its pages are in memory once. A checksum
covers the whole file; one that is torn or altered is made again.
"""

import hashlib
import json
import math
import shutil
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transfer.datasets.scene_arrays import ARRAY_NAMES, SceneArrays
from transfer.datasets.scenes import Scenes
from transfer.running.atomic_files import WriteError, explain_write_errors, write_whole
from transfer.running.console import print_line
from transfer.running.content_hash import content_hash
from transfer.running.lock import wait_for_lock

READER_VERSION = 1  # part of every name: raise it when the readers take other objects from a file
ENTRIES = "annotations"
"""Folder of all entries below the cache."""
START = struct.Struct("<8sQ32s")
"""Name of the layout, bytes of the header, SHA-256 of everything behind this."""
LAYOUT = b"sslscn01"
ALIGNMENT_BYTES = 64
RELATIVE_SIZE = 2
"""Size of the arrays, at most, over that of the JSON, for the check that the disk has room."""

Parse = Callable[[bytes], Scenes]
"""Returns the images and objects of the content of an annotation file."""


def read_once(file: Path, name: str, cache: Path, parse: Parse) -> Scenes:
    """Return the scenes of an annotation file, mapped from the cache; the first process parses it.

    name: what is read of the file, part of the hash that names the entry. Other processes wait for
    the first. Where the cache cannot be written, a line says so and this process parses the file.
    """
    sha256 = file_sha256(file)
    path = _entry(cache, name, sha256)
    scenes = load_scenes(path, file)
    if scenes is None:
        try:
            _require_space(path, RELATIVE_SIZE * file.stat().st_size)
            with wait_for_lock(path.with_suffix(".lock"), "--runs"):
                # once more: the process that held the lock may have written the entry
                scenes = load_scenes(path, file)
                if scenes is None:
                    content = file.read_bytes()
                    same = hashlib.sha256(content).hexdigest() == sha256
                    scenes = parse(content)
                    # half a gigabyte, which is free before the arrays are copied
                    del content
                    if same:  # else the file was replaced meanwhile
                        store_scenes(path, scenes)
                        scenes = load_scenes(path, file) or scenes
        except WriteError as error:
            print_line("data", f"{error}. Until then each process parses {file.name} by itself")
    return parse(file.read_bytes()) if scenes is None else scenes


def stored(file: Path, name: str, cache: Path) -> Scenes | None:
    """Return the scenes that `read_once` has stored of a file, mapped; None if there are none."""
    if not (cache / ENTRIES).is_dir():
        return None
    return load_scenes(_entry(cache, name, file_sha256(file)), file)


def file_sha256(file: Path) -> str:
    """Return the SHA-256 of a file as hex digits."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _entry(cache: Path, name: str, sha256: str) -> Path:
    entry = content_hash([READER_VERSION, name, sha256], 24)
    return cache / ENTRIES / f"{entry}.scenes"


def store_scenes(path: Path, scenes: Scenes) -> None:
    """Write the images and objects of a published split; WriteError if that fails."""
    arrays = {name: _array(scenes.arrays, name) for name in ARRAY_NAMES}
    places: dict[str, tuple[str, tuple[int, ...], int]] = {}
    at = 0
    for name, values in arrays.items():
        places[name] = (values.dtype.str, values.shape, at)
        at += _aligned(values.nbytes)
    about = {
        "arrays": places,
        "class_names": scenes.class_names,
        "category_ids": scenes.category_ids,
        "faulty": sorted(scenes.faulty),
        "faults": scenes.faults,
        "notes": scenes.notes,
    }
    header = json.dumps(about).encode()
    # spaces, which JSON ignores, so that the arrays start at a multiple of ALIGNMENT_BYTES
    header = header.ljust(_aligned(START.size + len(header)) - START.size)
    parts = [header]
    for values in arrays.values():
        parts += [values.tobytes(), bytes(_aligned(values.nbytes) - values.nbytes)]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    start = START.pack(LAYOUT, len(header), digest.digest())
    write_whole(path, b"".join([start, *parts]), "--runs")


def load_scenes(path: Path, annotations: Path) -> Scenes | None:
    """Map a stored split; None if the file is absent, unreadable, torn or altered.

    annotations: the JSON file, in the folder `annotations` of a set below the data folder.
    """
    try:
        with path.open("rb") as file:
            start = file.read(START.size)
            if len(start) < START.size:
                return None
            layout, header_bytes, expected = START.unpack(start)
            # read, not mapped: pages that are mapped would count as memory of each process
            if layout != LAYOUT or hashlib.file_digest(file, "sha256").digest() != expected:
                return None
            file.seek(START.size)
            about: dict[str, Any] = json.loads(file.read(header_bytes))
            # copy on write: a change stays in its process and never reaches the file
            content = np.memmap(file, np.uint8, mode="c", offset=0)
    except OSError:  # absent, or not to be read: then the JSON file is
        return None
    values = np.asarray(content)[START.size + header_bytes :]
    return Scenes(
        annotations.parents[2],
        SceneArrays(**_views(values, about["arrays"])),
        about["class_names"],
        category_ids=about["category_ids"],
        annotations=annotations,
        faulty=about["faulty"],
        faults=about["faults"],
        notes=about["notes"],
    )


def _views(values: NDArray[np.uint8], places: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    views = {}
    for name, (dtype, shape, at) in places.items():
        num_bytes = np.dtype(dtype).itemsize * math.prod(shape)
        views[name] = values[at : at + num_bytes].view(dtype).reshape(shape)
    return views


def _array(arrays: SceneArrays, name: str) -> NDArray[Any]:
    values: NDArray[Any] = vars(arrays)[name]
    return values


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _require_space(path: Path, num_bytes: int) -> None:
    """Raise WriteError if the disk has no room, before others wait for a parse that fails."""
    with explain_write_errors(path.parent, "--runs"):
        existing = path.parent
        while not existing.exists() and existing != existing.parent:
            existing = existing.parent
        free = shutil.disk_usage(existing).free
    if free < num_bytes:
        raise WriteError(
            f"{path.parent}: {free / 1e9:.1f} GB are free, arrays of the annotations may take "
            f"{num_bytes / 1e9:.1f} GB; free some space there, or give another --runs"
        )
