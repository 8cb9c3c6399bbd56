"""Published annotations of the images of a split, for pycocotools, stored once they were parsed.

COCO's training annotations are 450 MB of JSON, of which a search over learning rates needs the
5,000 images that it holds out, once for every rate. The arrays for training cannot serve: they lack
areas, masks of crowds, counts of keypoints, and boxes without area, which pycocotools evaluates.
The split's part of the file is therefore stored as it was parsed, as JSON, which has the same
numbers when it is read again. A checksum covers it; a torn or altered entry is made again.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from pretrain.running.atomic_files import WriteError, content_hash, write_whole
from transfer.datasets.objects.annotation_store import ENTRIES, file_sha256
from transfer.datasets.scenes import Scenes
from transfer.running.console import print_line

VERSION = 1  # part of every name: raise it when other parts of a file are stored
DIGEST_BYTES = 64

Truth = dict[str, Any]
"""The lists `images`, `annotations` (pairs of place in the file and annotation), `categories`."""


def published_truth(scenes: Scenes, annotations: Path, cache: Path | None = None) -> Truth:
    """Return images and annotations of a split as its file has them, without the broken ones.

    cache: folder for the part of this split, from where the next call reads it; None: parse the
    file. ValueError if an image is not in the file.
    """
    if cache is None:
        return _parse(scenes, annotations)
    path = _entry(scenes, annotations, cache)
    truth = _load(path)
    if truth is None:
        truth = _parse(scenes, annotations)
        # the file may have been replaced while it was parsed
        if path == _entry(scenes, annotations, cache):
            _store(path, truth, annotations)
    return truth


def _parse(scenes: Scenes, annotations: Path) -> Truth:
    content = json.loads(annotations.read_text())
    ids = {scenes.scene(i).image_id for i in range(len(scenes))}
    # the first image of each id is kept, as where the scenes are read
    images = {image["id"]: image for image in reversed(content["images"]) if image["id"] in ids}
    if len(images) != len(ids):
        raise ValueError(
            f"{annotations}: {len(images)} of the {len(ids)} images are in it; "
            "expected all: is it the file that the scenes were read from?"
        )
    return {
        "images": list(images.values()),
        "annotations": [
            [place, entry]
            for place, entry in enumerate(content["annotations"])
            if place not in scenes.faulty and entry["image_id"] in ids
        ],
        "categories": content["categories"],
    }


def _entry(scenes: Scenes, annotations: Path, cache: Path) -> Path:
    ids = [str(name, "utf-8") for name in scenes.arrays.image_ids[scenes.order]]
    split = [VERSION, file_sha256(annotations), ids, sorted(scenes.faulty)]
    return cache / ENTRIES / f"{content_hash(split, 24)}.truth.json"


def _load(path: Path) -> Truth | None:
    """Return a stored part; None if it is absent, torn or altered."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, text = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    if hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    truth: Truth = json.loads(text)
    return truth


def _store(path: Path, truth: Truth, annotations: Path) -> None:
    text = json.dumps(truth).encode()
    try:
        write_whole(path, hashlib.sha256(text).hexdigest().encode() + text, "--runs")
    except WriteError as error:
        print_line("data", f"{error}. Until then each test parses {annotations.name} anew")
