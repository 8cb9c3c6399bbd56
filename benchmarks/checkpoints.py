"""What a checkpoint is, remembered: a plan needs its network, size and hash, not its weights.

A file is read and proven once; as long as its place, length and time stay the same, so does what is
remembered. What evaluates the checkpoint reads and proves it again.
"""

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from transfer.backbone import Backbone, InputFormat, load_backbone, random_twin
from transfer.record import commit, write_json

VERSION = 1  # of what is remembered: raise it when a backbone's fields or their meaning change
WEIGHTLESS = ("state_dict", "name", "input")
"""Fields that are not remembered as they are."""


def looked_at(path: Path, name: str | None, runs: Path) -> Backbone:
    """The backbone in a file, without weights; BackboneError as when it is loaded."""
    return replace(_remembered(path, runs, "file"), name=name or path.stem)


def twin_looked_at(path: Path, runs: Path) -> Backbone:
    """The random twin of the backbone in a file, without weights."""
    return _remembered(path, runs, "twin")


def _remembered(path: Path, runs: Path, what: str) -> Backbone:
    """Looked up, or read now."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return load_backbone(path)  # which says what is wrong
    seen = [str(path.absolute()), status.st_size, status.st_mtime_ns, VERSION, _code(), what]
    name = hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:24]
    note = runs / "cache" / "checkpoints" / f"{name}.json"
    try:
        return _backbone(json.loads(note.read_text()))
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        backbone = load_backbone(path)
    if what == "twin":
        backbone = random_twin(backbone)
    with suppress(OSError):  # a full or foreign disk: read again next time
        write_json(note, _content(backbone))
    return replace(backbone, state_dict={})


@cache
def _code() -> str:
    """What is remembered was understood by it."""
    return commit()


def _content(backbone: Backbone) -> dict[str, Any]:
    kept = {
        spec.name: getattr(backbone, spec.name)
        for spec in fields(Backbone)
        if spec.name not in WEIGHTLESS
    }
    return kept | {"name": backbone.name, "input": asdict(backbone.input)}


def _backbone(content: dict[str, Any]) -> Backbone:
    form: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in content.pop("input").items()
    }
    return Backbone(input=InputFormat(**form), state_dict={}, **content)
