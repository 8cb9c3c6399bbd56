"""The check of a foreign backbone before it is evaluated, made once per weights and kept."""

import json
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pretrain.running.atomic_files import content_hash
from transfer.backbone import OWN_FORMATS, Backbone, BackboneError
from transfer.record import write_json
from transfer.topology.check import (
    MIN_IMAGES,
    NUM_IMAGES,
    Score,
    Topology,
    check_topology,
    sizes_of,
)
from transfer.topology.natural_images import natural_images

VERSION = 2  # of a kept comparison: raise it when scores or variants change


def with_checked_topology(
    backbone: Backbone, data: Path, cache: Path, *, trusted: bool = False
) -> Backbone:
    """Return the backbone, whose source now says what is known of its topology.

    data: folder with photographs anywhere below it; cache: folder for the comparison. Our own
    files name their network and are returned unchanged, as are random initializations.
    BackboneError if another network or input fits the running statistics clearly better, unless
    `trusted`.
    """
    if not is_foreign(backbone):
        return backbone
    topology = topology_of(backbone, data, cache)
    if topology.contradiction and not trusted:
        raise BackboneError(
            f"{backbone.source}: {topology.sentence}. With the assumed network the features would "
            f"be wrong. Look at `python -m transfer inspect FILE --images {data}`; --write there "
            f"saves the file as the network that fits where this suite can build it, and "
            f"--trust-topology evaluates the assumed network nevertheless"
        )
    return replace(backbone, source=f"{backbone.source}; {topology.sentence}")


def is_foreign(backbone: Backbone) -> bool:
    """Return whether the backbone comes from a file of another project."""
    is_own = any(f": {form} layout" in backbone.source for form in OWN_FORMATS)
    return bool(backbone.file_sha256) and not is_own


def topology_of(backbone: Backbone, data: Path, cache: Path) -> Topology:
    """Return the comparison for these weights, from the cache if enough images were at hand."""
    kept = cache / "topology" / f"{content_hash([backbone.sha256, str(data.absolute())], 24)}.json"
    with suppress(FileNotFoundError, KeyError, TypeError, ValueError):
        return _topology_from(json.loads(kept.read_text()))
    topology = compare_with_photographs(backbone, data)
    if topology.num_images >= MIN_IMAGES:
        with suppress(OSError):  # a full or read-only disk: the next process compares again
            write_json(kept, {"version": VERSION, **asdict(topology)})
    return topology


def compare_with_photographs(backbone: Backbone, folder: Path) -> Topology:
    """Return the comparison with photographs below a folder."""
    size_px = max(sizes_of(backbone.stem))
    return check_topology(backbone, natural_images(folder, count=NUM_IMAGES, size_px=size_px))


def _topology_from(content: dict[str, Any]) -> Topology:
    if content["version"] != VERSION:
        raise ValueError(
            f"the comparison was made by version {content['version']}; expected {VERSION}"
        )
    scores = {
        key: tuple(Score(**score) for score in content[key]) for key in ("inputs", "networks")
    }
    return Topology(num_images=content["num_images"], **scores)
