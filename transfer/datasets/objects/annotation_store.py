"""Objects of COCO, parsed once per machine, for all processes.

COCO's training annotations are 450 MB of JSON, which take every process of a run half a minute and
three gigabytes. The first process that reads them writes their arrays to the cache, under a hash of
the file's content; it and all others map those files, so their pages are in memory once. A folder
appears when all of it is written.
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
from pretrain.running.console import print_line
from pretrain.running.lock import wait_for_lock
from transfer.datasets.scenes import ARRAY_NAMES, SceneArrays, Scenes

READER_VERSION = 4  # part of every name: raise it when the readers take other objects from a file
ENTRIES = "annotations"
"""Folder of all entries below the cache."""
ABOUT = ("class_names", "category_ids", "faulty", "faults", "lost")
"""Fields that are stored beside the arrays."""

Parse = Callable[[Path], Scenes]
"""Returns the images and objects of an annotation file."""


def stored_scenes(file: Path, cache: Path) -> Scenes | None:
    """Return the scenes that `read_once` has stored of a file, mapped; None if there are none."""
    return _load(_entry(file, cache), file)


def read_once(file: Path, cache: Path, parse: Parse) -> Scenes:
    """Return the scenes of an annotation file, mapped from the cache; the first process parses it.

    Other processes wait for the first. Where the cache cannot be written, a line says so and this
    process parses the file.
    """
    path = _entry(file, cache)
    scenes = _load(path, file)
    if scenes is None:
        try:
            with wait_for_lock(path.with_suffix(".lock"), "--runs"):
                # the process that held the lock may have written the entry
                scenes = _load(path, file)
                if scenes is None:
                    parsed = parse(file)
                    if path != _entry(file, cache):  # it was replaced meanwhile
                        return parsed
                    _store(path, parsed)
                    scenes = _load(path, file)
        except WriteError as error:
            print_line("data", f"{error}. Until then each process parses {file.name} by itself")
    return parse(file) if scenes is None else scenes


def _entry(file: Path, cache: Path) -> Path:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    entry = content_hash([READER_VERSION, file.name, digest], 24)
    return cache / ENTRIES / f"{entry}.scenes"


def _store(path: Path, scenes: Scenes) -> None:
    about = {name: getattr(scenes, name) for name in ABOUT} | {"faulty": sorted(scenes.faulty)}
    with (
        explain_write_errors(path, "--runs"),
        tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{path.name}.") as name,
    ):
        folder = Path(name) / path.name
        folder.mkdir()
        for array, values in vars(scenes.arrays).items():
            with (folder / f"{array}.npy").open("wb") as file:
                np.save(file, values)
                file.flush()
                os.fsync(file.fileno())
        write_whole(folder / "about.json", json.dumps(about).encode(), "--runs")
        shutil.rmtree(path, ignore_errors=True)  # unreadable, or it would have been read
        folder.rename(path)


def _load(path: Path, annotations: Path) -> Scenes | None:
    """Map a stored split; None if it is absent or unreadable.

    annotations: the JSON file, in the folder `annotations` of a set below the data folder.
    """
    try:
        stored = json.loads((path / "about.json").read_text())
        about: dict[str, Any] = {name: stored[name] for name in ABOUT}
        # copy on write: a change stays in its process and never reaches the file
        arrays = {n: np.asarray(np.load(path / f"{n}.npy", mmap_mode="c")) for n in ARRAY_NAMES}
    except (OSError, EOFError, ValueError, LookupError, TypeError):
        return None
    return Scenes(annotations.parents[2], SceneArrays(**arrays), annotations=annotations, **about)
