"""Listings of images that are kept, so that a set is walked through once and not at every start.

They lie below $XDG_CACHE_HOME/ssl-benchmark/listings and may be deleted at any time. A listing
counts as long as every folder has the entries that it had. A file whose content is replaced by an
image of another size under its old name is noticed when it is read.
"""

import fcntl
import hashlib
import io
import json
import os
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np

from pretrain.data.images import Listing, TrainingImages, list_images
from pretrain.data.tree import FolderState, ImageFiles
from pretrain.pixels.decoding import UNREADABLE, image_size
from pretrain.running.atomic_files import write_whole
from pretrain.running.progress import print_line

VERSION = 1
"""Version of the format; others are not read."""
UNSURE_S = 2.0
"""A folder that changed so shortly before it was listed may change again at the same clock time."""
MANY_IMAGES = 100_000
"""Images whose listing takes so long that a line says where it is kept."""
TORN = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile)
"""Errors of reading a file that was cut short or damaged."""


def cache_folder() -> Path:
    """Return the folder of kept listings."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "ssl-benchmark" / "listings"


def kept_or_listed(folder: Path, *, tolerated: int = 0) -> TrainingImages:
    """Return all images below a folder as `find_images` does, from a kept listing if it counts.

    Of several processes on a machine that ask at the same time, one lists and the others wait.
    """
    path = cache_folder() / f"{hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:24]}.npz"
    with _lock(path):
        listing = _load(path, folder)
        if listing is None:
            started_s = time.time()
            listing = list_images(folder)
            _keep(path, listing, started_s)
    listing.require_readable(tolerated)
    return listing.images


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Wait until no other process lists the folder; without a writable cache there is no lock."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.with_suffix(".lock").open("a")
    except OSError:
        yield
        return
    with file:
        with suppress(OSError):  # some network disks have no locks: then all processes list
            fcntl.lockf(file, fcntl.LOCK_EX)
        yield


def _keep(path: Path, listing: Listing, started_s: float) -> None:
    """Write a listing, unless a folder changed just before; without room nothing is kept."""
    latest_ns = max(state.changed_ns for state in listing.states)
    if latest_ns > (started_s - UNSURE_S) * 1e9:
        return
    images = listing.images
    facts = {
        "version": VERSION,
        "fingerprint": images.fingerprint,
        "repeated": [str(link.relative_to(images.folder)) for link in images.repeated],
        "unreadable": listing.unreadable,
        "states": [asdict(state) for state in listing.states],
        "folders": images.files.folders,
    }
    content = io.BytesIO()
    np.savez(
        content,
        facts=np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8),
        folder_of=images.files.folder_of,
        text=np.frombuffer(images.files.text, dtype=np.uint8),
        ends=images.files.ends,
        heights=images.heights,
        widths=images.widths,
    )
    try:
        write_whole(path, content.getbuffer())
    except OSError:
        return
    if len(images) >= MANY_IMAGES:
        seconds = time.time() - started_s
        print_line(f"{len(images):,} images listed in {seconds:.0f} s; the list is kept in {path}")


def _load(path: Path, folder: Path) -> Listing | None:
    """Return a kept listing, or None if there is none that counts."""
    try:
        with path.open("rb") as content, np.load(content) as file:
            facts = json.loads(file["facts"].tobytes())
            arrays = {name: file[name] for name in ("folder_of", "ends", "heights", "widths")}
            text = file["text"].tobytes()
        if facts["version"] != VERSION:
            return None
        states = tuple(FolderState(**state) for state in facts["states"])
        if not all(_is_unchanged(folder, state) for state in states):
            return None
        if any(_opens(folder / name) for name in facts["unreadable"]):
            return None
        files = ImageFiles(
            folder, tuple(facts["folders"]), arrays["folder_of"], text, arrays["ends"]
        )
        images = TrainingImages(
            folder,
            files,
            arrays["heights"],
            arrays["widths"],
            tuple(folder / link for link in facts["repeated"]),
        )
        # computed once for a million names; a cached property finds it here
        images.__dict__["fingerprint"] = facts["fingerprint"]
        return Listing(images, tuple(facts["unreadable"]), states)
    except TORN:
        return None


def _is_unchanged(folder: Path, state: FolderState) -> bool:
    place = (folder / state.path).stat()
    return (place.st_ino, place.st_ctime_ns) == (state.inode, state.changed_ns)


def _opens(path: Path) -> bool:
    """Return whether what could not be read before can be read now: an image or a folder."""
    if path.is_dir():
        return os.access(path, os.R_OK | os.X_OK)
    return image_size(str(path)) != UNREADABLE
