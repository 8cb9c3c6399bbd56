"""Backbones of a request: where each comes from, its weights, or a description without them.

A plan needs network, size and hash, but no weights. Recipes that a user declares by --as belong to
the origins.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.planning.cells import split_numbers
from benchmarks.planning.options import RunAll
from benchmarks.planning.plan import PlannedCell
from benchmarks.results.records import CURVE_SEPARATOR
from pretrain.running import stop
from transfer.cells.declaration import (
    check_declared_recipe,
    settle_declaration,
    with_declared_recipe,
)
from transfer.datasets.folders import check_row_name
from transfer.encoders.encoder import BackboneError, Encoder, default_name, require_file, with_heads
from transfer.encoders.opening import load
from transfer.encoders.options import EncoderOptions
from transfer.finetuning.options import RANGES


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Origin of a backbone, for the process that will evaluate it."""

    ckpt: Path
    name: str = ""
    """Name of the whole backbone; `default_name` of the file if empty."""
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

    def load(self) -> Encoder:
        """Return the backbone; BackboneError if the file is none."""
        backbone = load(self.ckpt, self.encoder, name=self.name or None, branch=self.branch)
        if self.heads:
            backbone = with_heads(backbone, self.heads)
        backbone = with_declared_recipe(backbone, self.declared)
        return backbone.random_twin() if self.random else backbone


Origins = Mapping[str, Origin]
"""Origins by the name of the backbone."""


def origins(request: RunAll) -> list[Origin]:
    """Return the origin of each row of the tables; ValueError if the options do not fit."""
    request.network.check()
    if request.snapshots:
        return snapshot_origins(request)
    if not request.ckpt:
        raise ValueError("no checkpoint: give --ckpt FILE, --snapshots DIR, or --demo")
    for recipe in filter(None, request.declared):
        check_declared_recipe(recipe)
    none = ("",) * len(request.ckpt)
    names = one_each("name", request.name, [default_name(path) for path in request.ckpt])
    branches = one_each("branch", request.branch, none)
    declared = one_each("as", request.declared, none)
    whole = [
        Origin(ckpt=path, name=name, branch=branch, declared=recipe, encoder=request.network)
        for path, name, branch, recipe in zip(request.ckpt, names, branches, declared, strict=True)
    ]
    for origin in whole:
        check_row_name(origin.name, default_name(origin.ckpt))
    if request.heads and request.network.encoder:
        raise ValueError(f"--heads are of LooC++'s ResNets, not of {request.network.encoder}")
    subsets = [
        tuple(split_numbers(words, "--heads", "0,2", RANGES["heads"])) for words in request.heads
    ]
    parts = [replace(origin, heads=heads) for heads in subsets for origin in whole]
    for path in request.ckpt:
        require_file(path)
    return [*whole, *parts, *[replace(whole[0], random=True)] * request.random]


def one_each(option: str, words: Sequence[str], defaults: Sequence[str]) -> Sequence[str]:
    """Return the words, or the defaults if none is given; ValueError for another number."""
    if words and len(words) != len(defaults):
        raise ValueError(
            f"--{option} {' '.join(words)}: {len(words)} given for {len(defaults)} checkpoints or "
            "folders; '' leaves one out"
        )
    return words or defaults


def backbones(request: RunAll) -> tuple[list[Encoder], Origins, dict[str, str]]:
    """Return the backbones, one per row of the tables, their origins, and unreadable snapshots.

    The last are reasons by name; any other file that is no backbone is a BackboneError. ValueError
    for options that do not fit. Only what this process evaluates has weights; those of snapshots
    are loaded at their turn.
    """
    found: dict[str, Encoder] = {}
    sources: dict[str, Origin] = {}
    unreadable: dict[str, str] = {}
    elsewhere = request.cluster.slurm or request.workers > 1
    here = not (request.plan or elsewhere or request.snapshots)
    for origin in origins(request):
        stop.exit_if_requested()
        try:
            backbone = origin.load() if here else replace(origin.load(), state_dict={})
        except (BackboneError, OSError) as error:
            if not request.snapshots:
                raise
            unreadable[origin.name] = str(error)
            print(f"{origin.name}  failed: {error}", file=sys.stderr, flush=True)
            continue
        if backbone.name in found:
            raise ValueError(f"two checkpoints are called {backbone.name!r}; give each a --name")
        found[backbone.name], sources[backbone.name] = backbone, origin
    return list(found.values()), sources, unreadable


def snapshot_origins(request: RunAll) -> list[Origin]:
    """Return the snapshots of all folders, named after their curves, curve by curve.

    ValueError for a wrong number of names, a name that occurs twice, or a folder without snapshots.
    """
    found = []
    curves: set[str] = set()
    defaults = [folder.resolve().parent.name for folder in request.snapshots]
    given = one_each("name", request.name, defaults)
    for curve, default, folder in zip(given, defaults, request.snapshots, strict=True):
        check_row_name(curve, default)
        if curve in curves:
            raise ValueError(f"curve {curve}: a name occurs twice; give each a --name")
        curves.add(curve)
        paths = sorted(folder.glob("*.pt"))
        if not paths:
            raise ValueError(
                f"{folder}: no snapshot; python -m pretrain RECIPE ... --snapshot-epochs 10 "
                "writes them"
            )
        found += [Origin(ckpt=one, name=f"{curve}{CURVE_SEPARATOR}{one.stem}") for one in paths]
    return found


def settle_declarations(
    rows: Sequence[PlannedCell], sources: Origins, *, given: bool
) -> tuple[list[PlannedCell], Origins, list[str]]:
    """Make declarations and finished records agree, and return rows, origins and lines about it.

    given: the command line has --as. Without it, recipes that earlier runs declared are kept.
    """
    settled: dict[str, Encoder] = {}
    lines: dict[str, str] = {}
    for cell in {row.cell.backbone.name: row.cell for row in rows}.values():
        name, records = cell.backbone.name, cell.settings.records
        settled[name], lines[name] = settle_declaration(records, cell.backbone, given=given)
    kept = [
        replace(row, cell=replace(row.cell, backbone=settled[row.cell.backbone.name]))
        for row in rows
    ]
    declared = {
        name: replace(origin, declared=settled[name].declared) for name, origin in sources.items()
    }
    return kept, declared, list(filter(None, lines.values()))
