"""Descriptions of checkpoints, cached: a plan needs network, size and hash, but no weights.

A file is read and checked once. The cached description is valid as long as the file's path, size
and modification time stay the same. An evaluation reads and checks the file again.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from transfer.backbone import Backbone, InputFormat, load_backbone, random_twin, with_heads
from transfer.cells.declaration import with_declared_recipe
from transfer.record import commit, write_json
from transfer.running.content_hash import content_hash

VERSION = 4  # of the cached description: raise it when a backbone's fields or their meaning change
WEIGHTLESS = ("state_dict", "name", "input")
"""Fields that are not cached as they are."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Origin of a backbone, for the process that will evaluate it."""

    ckpt: Path
    name: str | None = None
    """Name of the whole backbone; the file's name if not given."""
    branch: str = ""
    """Part of the prefix of the ResNet to take where the file holds several."""
    declared: str = ""
    """Recipe that the user declares for a file that does not say how it was made."""
    heads: tuple[int, ...] = ()
    """Heads of the file that are used; all if empty."""
    random: bool = False
    """The backbone is a random initialization of the file's network."""

    def select(self, whole: Backbone) -> Backbone:
        """Return the backbone of this origin, given the whole backbone in the file."""
        backbone = with_heads(whole, self.heads) if self.heads else whole
        backbone = with_declared_recipe(backbone, self.declared)
        return random_twin(backbone) if self.random else backbone


Origins = Mapping[str, Origin]
"""Origins by the name of the backbone."""


def load_backbones(origins: Sequence[Origin]) -> list[Backbone]:
    """Return the backbones with their weights, each file read once.

    BackboneError if a file is no backbone.
    """
    files = {
        (path, name, branch): load_backbone(path, name=name, branch=branch)
        for path, name, branch in dict.fromkeys((o.ckpt, o.name, o.branch) for o in origins)
    }
    return [origin.select(files[origin.ckpt, origin.name, origin.branch]) for origin in origins]


def inspect_checkpoint(origin: Origin, runs: Path) -> Backbone:
    """Return the backbone without weights, from the cache if possible.

    BackboneError if the file is no backbone.
    """
    backbone = _read_or_cached(replace(origin, name=None, declared=""), runs)
    if origin.random:
        return backbone
    backbone = with_declared_recipe(backbone, origin.declared)
    if origin.name is None:
        return backbone
    # the cache knows the backbone by its file's name; heads may have added words behind that
    return replace(backbone, name=origin.name + backbone.name.removeprefix(origin.ckpt.stem))


def _read_or_cached(origin: Origin, runs: Path) -> Backbone:
    """Return the cached backbone, or read the file and cache it."""
    path = origin.ckpt
    try:
        status = path.stat()
    except OSError:  # missing, or a name that no file can have
        return load_backbone(path)  # raises the error that says what is wrong
    version = [VERSION, _code_version(), list(origin.heads), origin.random, origin.branch]
    identity = [
        str(path.absolute()),
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        *version,
    ]
    name = content_hash(identity, 24)
    cached = runs / "cache" / "checkpoints" / f"{name}.json"
    try:
        backbone = _backbone_from(json.loads(cached.read_text()))
        # the path may be written in another way than when the description was cached
        return replace(backbone, file=str(path)) if backbone.file else backbone
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        (backbone,) = load_backbones([origin])
    with suppress(OSError):  # a full or read-only disk: the file is read again next time
        write_json(cached, _description_of(backbone))
    return replace(backbone, state_dict={})


@cache
def _code_version() -> str:
    """Return the commit of the code, which decides how a file is read."""
    return commit()


def _description_of(backbone: Backbone) -> dict[str, Any]:
    kept = {
        spec.name: getattr(backbone, spec.name)
        for spec in fields(Backbone)
        if spec.name not in WEIGHTLESS
    }
    return kept | {"name": backbone.name, "input": asdict(backbone.input)}


def _backbone_from(content: dict[str, Any]) -> Backbone:
    form: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in content.pop("input").items()
    }
    return Backbone(input=InputFormat(**form), state_dict={}, **content)
