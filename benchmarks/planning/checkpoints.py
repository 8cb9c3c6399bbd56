"""Checkpoints of a request, and their backbones, without weights.

A plan needs network, size and hash; each job loads the weights.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.planning.cells import split_numbers
from benchmarks.planning.options import RunAll
from benchmarks.planning.plan import PlannedCell
from benchmarks.results.records import CURVE_SEPARATOR, RANDOM
from pretrain.running import stop
from transfer.cells.cell import open_checkpoint
from transfer.cells.declaration import check_declared_recipe, settle_declaration
from transfer.datasets.folders import check_row_name
from transfer.encoders.architectures import BackboneError
from transfer.encoders.encoder import Encoder, default_name
from transfer.encoders.file_types import check_is_checkpoint
from transfer.encoders.hub import local_file
from transfer.encoders.options import Checkpoint, EncoderOptions
from transfer.finetuning.options import RANGES


def checkpoints(request: RunAll) -> list[Checkpoint]:
    """Return the checkpoint of each row of the tables but for random initializations.

    ValueError if the options do not fit.
    """
    if request.snapshots:
        return _snapshots(request)
    if not request.ckpt:
        raise ValueError("no checkpoint: give --ckpt FILE, --snapshots DIR, or --demo")
    for recipe in filter(None, request.declared):
        check_declared_recipe(recipe)
    paths, none = [local_file(path) for path in request.ckpt], ("",) * len(request.ckpt)
    names = one_each("name", request.name, [default_name(path) for path in paths])
    branches = one_each("branch", request.branch, none)
    declared = one_each("as", request.declared, none)
    whole = [
        Checkpoint(
            ckpt=path,
            name=name,
            branch=branch,
            declared=recipe if request.declared else None,
            network=network,
        )
        for path, name, branch, recipe, network in zip(
            paths, names, branches, declared, networks(request), strict=True
        )
    ]
    for name, path in zip(names, paths, strict=True):
        check_row_name(name, default_name(path))
    if request.heads and (encoders := [*filter(None, request.encoder)]):
        raise ValueError(f"--heads are of LooC++'s ResNets, not of {encoders[0]}")
    subsets = [
        tuple(split_numbers(words, "--heads", "0,2", RANGES["heads"])) for words in request.heads
    ]
    parts = [replace(one, heads=heads) for heads in subsets for one in whole]
    for path in paths:
        check_is_checkpoint(path)
    return [*whole, *parts]


def networks(request: RunAll) -> list[EncoderOptions]:
    """Return the encoder options of each checkpoint; a ResNet has none.

    A single value of an option holds for all checkpoints with an encoder. ValueError if the options
    do not fit.
    """
    count = len(request.ckpt)
    encoders = _one_for_all_or_each("encoder", request.encoder, [True] * count)
    has_encoder = [bool(encoder) for encoder in encoders]
    pools = _one_for_all_or_each("pool", request.pool, has_encoder)
    sides = _one_for_all_or_each("input-px", request.input_px, has_encoder)
    norm = {"input_mean": request.input_mean, "input_std": request.input_std}
    if any(norm.values()) and len(names := {*filter(None, encoders)}) > 1:
        raise ValueError(
            f"--input-mean and --input-std are those of one encoder, and {len(names)} are given; "
            "run them one after another, or let a FILE.py:FUNCTION state them"
        )
    found = []
    for encoder, pool, side, has_own in zip(encoders, pools, sides, has_encoder, strict=True):
        if side and not side.isdecimal():
            raise ValueError(f"--input-px {side}: expected a whole number of px, or ''")
        own = norm if has_own or not any(has_encoder) else {}
        options = EncoderOptions(encoder=encoder, pool=pool, input_px=int(side or 0), **own)
        options.check()
        found.append(options.local())
    return found


def _one_for_all_or_each(option: str, words: Sequence[Any], takes: Sequence[bool]) -> Sequence[Any]:
    """Return a word for each checkpoint; a single one holds for those that take it, or for all."""
    if len(words) == 1 and len(takes) != 1:
        return [words[0] if one or not any(takes) else "" for one in takes]
    return one_each(option, words, [""] * len(takes))


def with_random_weightss(opened: Mapping[Checkpoint, Encoder]) -> list[Checkpoint]:
    """Return a random initialization for each network of the checkpoints, in their order.

    The first is called random, further ones random-NETWORK.
    """
    twins: dict[tuple[str, str, EncoderOptions], Checkpoint] = {}
    names: list[str] = []
    for checkpoint, encoder in opened.items():
        network = encoder.arch, encoder.stem, checkpoint.network
        if network in twins or checkpoint.heads:
            continue
        words = re.sub(r"^(timm|torchvision|hf):|\.py(?=:)", "", encoder.arch)
        name = own = re.sub(r"[^\w.-]+", "-", f"{RANDOM}-{words}") if twins else RANDOM
        count = 1
        while name in names:  # another stem, input size or pooling of one network
            count += 1
            name = f"{own}-{count}"
        names.append(name)
        twins[network] = replace(checkpoint, random=True, name=name)
    return [*twins.values()]


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

    The last are reasons by name; any other file that is not a backbone is a BackboneError.
    ValueError for options that do not fit. The backbones have no weights: a job loads its own.
    """
    found: dict[Checkpoint, Encoder] = {}
    unreadable: dict[str, str] = {}

    def open_each(asked: Iterable[Checkpoint]) -> None:
        for checkpoint in asked:
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
                    f"two rows are called {backbone.name!r}: names must differ; give each "
                    "checkpoint a --name of its own"
                )
            found[checkpoint] = replace(backbone, state_dict={})

    open_each(checkpoints(request))
    if request.random:
        open_each(with_random_weightss(found))
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

    given: the command line has --trained-with. Without it, recipes that earlier runs declared are
    kept.
    """
    settled: dict[str, Encoder] = {}
    lines: dict[str, str] = {}
    for cell in {row.cell.backbone.name: row.cell for row in rows}.values():
        name = cell.backbone.name
        settled[name], lines[name] = settle_declaration(
            cell.records, cell.backbone, is_explicit=given
        )
    declared = []
    for row in rows:
        backbone = settled[row.cell.backbone.name]
        declared.append(replace(row, cell=row.cell.declared_as(backbone, is_explicit=given)))
    return declared, list(filter(None, lines.values()))
