"""Checkpoints of a request, and their backbones: with their weights, or described without them.

A plan needs network, size and hash, but no weights.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.planning.cells import split_numbers
from benchmarks.planning.options import RunAll
from benchmarks.planning.plan import PlannedCell
from benchmarks.results.records import CURVE_SEPARATOR
from pretrain.running import stop
from transfer.cells.cell import open_checkpoint
from transfer.cells.declaration import check_declared_recipe, settle_declaration
from transfer.datasets.folders import check_row_name
from transfer.encoders.encoder import BackboneError, Encoder, default_name, require_file
from transfer.encoders.options import Checkpoint
from transfer.finetuning.options import RANGES


def checkpoints(request: RunAll) -> list[Checkpoint]:
    """Return the checkpoint of each row of the tables; ValueError if the options do not fit."""
    request.network.check()
    if request.snapshots:
        return _snapshots(request)
    if not request.ckpt:
        raise ValueError("no checkpoint: give --ckpt FILE, --snapshots DIR, or --demo")
    for recipe in filter(None, request.declared):
        check_declared_recipe(recipe)
    none = ("",) * len(request.ckpt)
    names = one_each("name", request.name, [default_name(path) for path in request.ckpt])
    branches = one_each("branch", request.branch, none)
    declared = one_each("as", request.declared, none)
    whole = [
        Checkpoint(
            ckpt=path,
            name=name,
            branch=branch,
            declared=recipe if request.declared else None,
            network=request.network,
        )
        for path, name, branch, recipe in zip(request.ckpt, names, branches, declared, strict=True)
    ]
    for name, path in zip(names, request.ckpt, strict=True):
        check_row_name(name, default_name(path))
    if request.heads and request.network.encoder:
        raise ValueError(f"--heads are of LooC++'s ResNets, not of {request.network.encoder}")
    subsets = [
        tuple(split_numbers(words, "--heads", "0,2", RANGES["heads"])) for words in request.heads
    ]
    parts = [replace(one, heads=heads) for heads in subsets for one in whole]
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


def backbones(request: RunAll) -> tuple[dict[Checkpoint, Encoder], dict[str, str]]:
    """Return the backbone of each row of the tables, and unreadable snapshots.

    The last are reasons by name; any other file that is no backbone is a BackboneError. ValueError
    for options that do not fit. Only what this process evaluates has weights; those of snapshots
    are loaded at their turn.
    """
    found: dict[Checkpoint, Encoder] = {}
    unreadable: dict[str, str] = {}
    elsewhere = request.cluster.slurm or request.workers > 1
    here = not (request.plan or elsewhere or request.snapshots)
    for checkpoint in checkpoints(request):
        stop.exit_if_requested()
        try:
            backbone = open_checkpoint(checkpoint)
        except (BackboneError, OSError) as error:
            if not checkpoint.snapshot:
                raise
            unreadable[str(checkpoint.name)] = str(error)
            print(f"{checkpoint.name}  failed: {error}", file=sys.stderr, flush=True)
            continue
        if backbone.name in (other.name for other in found.values()):
            raise ValueError(
                f"two rows are called {backbone.name!r}: names must differ; give each checkpoint "
                "a --name of its own"
            )
        found[checkpoint] = backbone if here else replace(backbone, state_dict={})
    return found, unreadable


def _snapshots(request: RunAll) -> list[Checkpoint]:
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
            raise ValueError(
                f"two curves are called {curve!r}: names must differ; give each folder a --name of "
                "its own"
            )
        curves.add(curve)
        paths = sorted(folder.glob("*.pt"))
        if not paths:
            raise ValueError(
                f"{folder}: no snapshot; python -m pretrain RECIPE ... --snapshot-epochs 10 "
                "writes them"
            )
        found += [
            Checkpoint(ckpt=path, name=f"{curve}{CURVE_SEPARATOR}{path.stem}", snapshot=True)
            for path in paths
        ]
    return found


def settle_declarations(
    rows: Sequence[PlannedCell], *, given: bool
) -> tuple[list[PlannedCell], list[str]]:
    """Make declarations and finished records agree, and return the rows and lines about it.

    given: the command line has --as. Without it, recipes that earlier runs declared are kept.
    """
    settled: dict[str, Encoder] = {}
    lines: dict[str, str] = {}
    for cell in {row.cell.backbone.name: row.cell for row in rows}.values():
        name = cell.backbone.name
        settled[name], lines[name] = settle_declaration(cell.records, cell.backbone, given=given)
    declared = []
    for row in rows:
        backbone = settled[row.cell.backbone.name]
        recipe = backbone.declared or ("" if given else None)  # "" withdraws a recognized one
        checkpoint = replace(row.cell.request.checkpoint, declared=recipe)
        cell = replace(row.cell.asking(checkpoint=checkpoint), backbone=backbone)
        declared.append(replace(row, cell=cell))
    return declared, list(filter(None, lines.values()))
