"""Annotations of a detection set, parsed once per machine and mapped by all processes.

COCO's training annotations are 450 MB of JSON, which take every process of a run half a minute and
three gigabytes. The first process that reads them writes their arrays to the cache, under a hash of
the file's content. It and all others map those files, so their pages are in memory once. A folder
appears when all of it is written; one that is incomplete is made again.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pretrain.running.atomic_files import (
    WriteError,
    content_hash,
    explain_write_errors,
    write_whole,
)
from pretrain.running.lock import wait_for_lock
from transfer.datasets.scene_arrays import ARRAY_NAMES, SceneArrays
from transfer.datasets.scenes import Scenes
from transfer.running.console import print_line

READER_VERSION = 2  # part of every name: raise it when the readers take other objects from a file
ENTRIES = "annotations"
"""Folder of all entries below the cache."""
ABOUT = ("class_names", "category_ids", "faulty", "faults", "notes")
"""What is stored beside the arrays."""
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
    """Write the images and objects of a published split to a folder that appears whole.

    WriteError if that fails. Nobody else may write it at the same time.
    """
    about = {name: getattr(scenes, name) for name in ABOUT} | {"faulty": sorted(scenes.faulty)}
    with explain_write_errors(path, "--runs"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{path.name}.") as name:
            folder = Path(name) / path.name
            folder.mkdir()
            for array, values in vars(scenes.arrays).items():
                with (folder / f"{array}.npy").open("wb") as file:
                    np.save(file, values)
                    file.flush()
                    os.fsync(file.fileno())
            write_whole(folder / "about.json", json.dumps(about).encode(), "--runs")
            if path.exists():
                shutil.rmtree(path)  # damaged, or it would have been read
            folder.rename(path)


def load_scenes(path: Path, annotations: Path) -> Scenes | None:
    """Map a stored split; None if the folder is absent, unreadable or incomplete.

    annotations: the JSON file, in the folder `annotations` of a set below the data folder.
    """
    try:
        about: dict[str, Any] = json.loads((path / "about.json").read_text())
        # copy on write: a change stays in its process and never reaches the file
        arrays = {name: np.load(path / f"{name}.npy", mmap_mode="c") for name in ARRAY_NAMES}
    except (OSError, ValueError):  # the JSON file is read then
        return None
    return Scenes(annotations.parents[2], SceneArrays(**arrays), annotations=annotations, **about)


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
