"""Backbones of a request: where each comes from, its weights, or a description without them.

A plan needs network, size and hash, but no weights. So a file is read and checked once, and the
description is cached as long as its path, size and times stay the same. An evaluation reads and
checks the file again. Recipes that a user declares by --as belong to the origins.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.pages.published import published_recipes
from benchmarks.planning.cells import split_numbers
from benchmarks.planning.options import RunAll
from benchmarks.planning.plan import PlannedCell
from pretrain.running.atomic_files import content_hash
from transfer.backbone import Backbone, BackboneError, InputFormat, with_heads
from transfer.cells.declaration import settle_declaration, with_declared_recipe
from transfer.encoders.encoder import Encoder, load
from transfer.encoders.options import EncoderOptions
from transfer.record import commit, write_json
from transfer.running.option_ranges import RANGES
from transfer.running.row_names import check_row_name

VERSION = 5  # of the cached description: raise it when a backbone's fields or their meaning change


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
    encoder: EncoderOptions = field(default_factory=EncoderOptions)
    """Network that is no ResNet, if the request names one."""
    random: bool = False
    """The backbone is a random initialization of the file's network."""

    def select(self, whole: Backbone) -> Backbone:
        """Return the backbone of this origin, given the whole backbone in the file."""
        backbone = with_heads(whole, self.heads) if self.heads else whole
        backbone = with_declared_recipe(backbone, self.declared)
        return backbone.random_twin() if self.random else backbone


Origins = Mapping[str, Origin]
"""Origins by the name of the backbone."""


def origins(request: RunAll) -> list[Origin]:
    """Return the origin of each row of the tables; ValueError if the options do not fit."""
    if not request.ckpt:
        raise ValueError("no checkpoint: give --ckpt FILE, --snapshots DIR, or --demo")
    if request.name and len(request.name) != len(request.ckpt):
        raise ValueError(
            f"--name {' '.join(request.name)}: {len(request.name)} names for "
            f"{len(request.ckpt)} checkpoints"
        )
    if request.branch and len(request.branch) != len(request.ckpt):
        raise ValueError(
            f"--branch {' '.join(request.branch)}: {len(request.branch)} branches for "
            f"{len(request.ckpt)} checkpoints; '' leaves the choice to the suite"
        )
    request.network.check()
    declared = declared_recipes(request.declared, len(request.ckpt))
    names: tuple[str | None, ...] = request.name or (None,) * len(request.ckpt)
    for path, name in zip(request.ckpt, names, strict=True):
        check_row_name(path.stem if name is None else name, path.stem)
    branches = request.branch or ("",) * len(request.ckpt)
    whole = [
        Origin(ckpt=path, name=name, branch=branch, declared=recipe, encoder=request.network)
        for path, name, branch, recipe in zip(request.ckpt, names, branches, declared, strict=True)
    ]
    subsets = [
        tuple(split_numbers(words, "--heads", "0,2", RANGES["heads"])) for words in request.heads
    ]
    parts = [replace(origin, heads=heads) for heads in subsets for origin in whole]
    if request.heads and request.network.encoder:
        raise ValueError(f"--heads are of LooC++'s ResNets, not of {request.network.encoder}")
    for path in request.ckpt:  # before torch is imported to read it
        if not path.exists():
            raise BackboneError(f"{path}: no such file; expected a checkpoint file")
    return [*whole, *parts, *[replace(whole[0], random=True)] * request.random]


def backbones(request: RunAll) -> list[Backbone]:
    """Return the backbones, one per row of the tables.

    BackboneError for a file that is no backbone, ValueError for options that do not fit.
    """
    sources = origins(request)
    if request.evaluates_here:
        from transfer.topology.require import with_checked_topology

        rows = [
            row
            if origin.random
            else with_checked_topology(
                row, request.data, request.runs / "cache", trusted=request.trust_topology
            )
            for origin, row in zip(sources, load_backbones(sources), strict=True)
        ]
    else:
        rows = [inspect_checkpoint(origin, request.runs) for origin in sources]
    twice = [row.name for row in rows if [other.name for other in rows].count(row.name) > 1]
    if twice:
        raise ValueError(f"two checkpoints are called {twice[0]!r}; give each a --name")
    return rows


def declared_recipes(declared: Sequence[str], num_checkpoints: int) -> tuple[str, ...]:
    """Return the declared recipe of each checkpoint; '' for none, which withdraws an earlier one.

    ValueError for a wrong number of recipes, and for what no paper's number names: such a recipe
    would be compared with nothing.
    """
    if declared and len(declared) != num_checkpoints:
        raise ValueError(
            f"--as {' '.join(declared)}: {len(declared)} recipes for {num_checkpoints} "
            "checkpoints; '' declares nothing"
        )
    known = published_recipes()
    for recipe in declared:
        if recipe and recipe not in known:
            close = get_close_matches(recipe, known, n=3, cutoff=0.3)
            raise ValueError(
                f"--as {recipe}: no published number is of this recipe; close are "
                f"{', '.join(close) or 'none'}. `python -m pretrain --list` shows all"
            )
    return tuple(declared) or ("",) * num_checkpoints


def load_backbones(origins: Sequence[Origin]) -> list[Backbone]:
    """Return the backbones with their weights, each file read once.

    BackboneError if a file is no backbone.
    """
    files = {
        (path, name, branch): load(path, encoder, name=name, branch=branch)
        for path, name, branch, encoder in dict.fromkeys(
            (o.ckpt, o.name, o.branch, o.encoder) for o in origins
        )
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
        return load(path, origin.encoder)  # raises the error that says what is wrong
    version = [VERSION, _code_version(), list(origin.heads), origin.random, origin.branch]
    version += origin.encoder.words
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
        (whole,) = load_backbones([origin])
    backbone = replace(whole, state_dict={})
    with suppress(OSError):  # a full or read-only disk: the file is read again next time
        write_json(cached, asdict(backbone))
    return backbone


@cache
def _code_version() -> str:
    """Return the commit of the code, which decides how a file is read."""
    return commit()


def _backbone_from(content: dict[str, Any]) -> Backbone:
    form: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in content.pop("input").items()
    }
    content["words"] = tuple(content["words"])
    if options := content.pop("options", None):
        given: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in options.items()
        }
        return Encoder(input=InputFormat(**form), options=EncoderOptions(**given), **content)
    return Backbone(input=InputFormat(**form), **content)


def settle_declarations(
    rows: Sequence[PlannedCell], sources: Origins, *, given: bool
) -> tuple[list[PlannedCell], Origins, list[str]]:
    """Make declarations and finished records agree, and return rows, origins and lines about it.

    given: the command line has --as. Without it, recipes that earlier runs declared are kept.
    """
    backbones = {row.cell.backbone.name: row.cell for row in rows}
    settled = {
        name: settle_declaration(cell.settings.records, cell.backbone, given=given)
        for name, cell in backbones.items()
    }
    kept = [
        replace(row, cell=replace(row.cell, backbone=settled[row.cell.backbone.name][0]))
        for row in rows
    ]
    declared = {
        name: replace(origin, declared=settled[name][0].declared)
        for name, origin in sources.items()
    }
    return kept, declared, [line for _, line in settled.values() if line]
