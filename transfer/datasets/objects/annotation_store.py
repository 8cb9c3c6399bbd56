"""Cache of parsed COCO annotations.

COCO's training annotations are 450 MB of JSON. Parsing and checking them takes half a minute and
3 GB. The first process stores the arrays in the cache, under a hash of the file's content.
Folders `annotations/*.scenes` in a cache are from earlier versions and may be deleted.
"""

import hashlib
import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from pretrain.running.atomic_files import WriteError, content_hash, write_whole
from pretrain.running.console import print_line
from pretrain.running.reading import read_bytes
from transfer.datasets.scenes import ARRAY_NAMES, SceneArrays, Scenes

READER_VERSION = 4  # part of each name: increase it when the readers select other objects
ABOUT = ("class_names", "category_ids", "faulty", "faults", "lost")
"""Fields of `Scenes` that are stored with the arrays."""

Parse = Callable[[Path, bytes], Scenes]
"""Returns the images and objects of an annotation file, given its content."""


def stored_scenes(file: Path, cache: Path) -> Scenes | None:
    """Return the scenes that `read_once` has stored for a file, or None."""
    with file.open("rb") as content:
        return _load(file, _entry(file, cache, hashlib.file_digest(content, "sha256").hexdigest()))


def read_once(file: Path, cache: Path, parse: Parse) -> Scenes:
    """Return the scenes of a file, from the cache or by parsing.

    Processes that start at the same time all parse it, with the same result. If the cache cannot
    be written, a message is printed.
    """
    scenes = stored_scenes(file, cache)
    if scenes is not None:
        return scenes
    content = read_bytes(file)
    scenes = parse(file, content)
    about = {name: list(getattr(scenes, name)) for name in ABOUT}
    buffer = BytesIO()
    np.savez(buffer, about=np.array(json.dumps(about)), **vars(scenes.arrays))
    # use the hash of the parsed bytes, since the file may have been replaced in the meantime
    entry = _entry(file, cache, hashlib.sha256(content).hexdigest())
    try:
        write_whole(entry, buffer.getvalue(), "--runs")
    except WriteError as error:
        print_line("data", f"{error}. Until then, each process parses {file.name} again")
    return scenes


def _entry(file: Path, cache: Path, digest: str) -> Path:
    return cache / "annotations" / f"{content_hash([READER_VERSION, file.name, digest], 24)}.npz"


def _load(file: Path, entry: Path) -> Scenes | None:
    """Return stored scenes; None if the entry is missing or unreadable."""
    try:
        with entry.open("rb") as opened, np.load(opened) as stored:
            about = json.loads(str(stored["about"]))
            arrays = SceneArrays(**{name: stored[name] for name in ARRAY_NAMES})
            # the annotation file is DATA/DATASET/annotations/FILE
            return Scenes(file.parents[2], arrays, annotations=file, **about)
    except (OSError, EOFError, ValueError, LookupError, TypeError, BadZipFile):
        return None
