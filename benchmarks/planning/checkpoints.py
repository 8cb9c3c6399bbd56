"""What a checkpoint is, remembered: a plan needs its network, size and hash, not its weights.

A file is read and proven once; as long as its place, length and time stay the same, so does what is
remembered. What evaluates the checkpoint reads and proves it again.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from transfer.backbone import Backbone, InputFormat, load_backbone, random_twin, with_heads
from transfer.record import commit, write_json

VERSION = 2  # of what is remembered: raise it when a backbone's fields or their meaning change
WEIGHTLESS = ("state_dict", "name", "input")
"""Fields that are not remembered as they are."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a backbone comes from, for the process that will evaluate it."""

    ckpt: Path
    name: str | None = None
    """Of the whole backbone; the file's name if not given."""
    heads: tuple[int, ...] = ()
    """Only these of the file's heads; all if empty."""
    random: bool = False
    """It is the random twin of what is in the file."""

    def of(self, whole: Backbone) -> Backbone:
        """The backbone that is meant, from the whole one in the file."""
        backbone = with_heads(whole, self.heads) if self.heads else whole
        return random_twin(backbone) if self.random else backbone


Origins = Mapping[str, Origin]
"""By the name of the backbone."""


def loaded(origins: Sequence[Origin]) -> list[Backbone]:
    """The backbones with their weights, each file read once; BackboneError if one is none."""
    pairs = dict.fromkeys((origin.ckpt, origin.name) for origin in origins)
    files = {(path, name): load_backbone(path, name=name) for path, name in pairs}
    return [origin.of(files[origin.ckpt, origin.name]) for origin in origins]


def looked_at(origin: Origin, runs: Path) -> Backbone:
    """The same without weights; BackboneError as when it is loaded."""
    found = _remembered(replace(origin, name=None), runs)
    if origin.random or origin.name is None:
        return found
    return replace(found, name=origin.name + found.name.removeprefix(origin.ckpt.stem))


def _remembered(origin: Origin, runs: Path) -> Backbone:
    """Looked up, or read now."""
    path = origin.ckpt
    try:
        status = path.stat()
    except FileNotFoundError:
        return load_backbone(path)  # which says what is wrong
    what = [VERSION, _code(), list(origin.heads), origin.random]
    seen = [str(path.absolute()), status.st_size, status.st_mtime_ns, *what]
    name = hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:24]
    note = runs / "cache" / "checkpoints" / f"{name}.json"
    try:
        return _backbone(json.loads(note.read_text()))
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        (backbone,) = loaded([origin])
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
