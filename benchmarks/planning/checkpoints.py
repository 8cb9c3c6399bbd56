"""Checkpoints of a request and their backbones, without weights.

A plan needs the network, its input size and the hash of its weights. Each job loads the weights.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
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
from transfer.encoders.options import HEADS, Checkpoint, EncoderOptions
from transfer.record import read_json


def checkpoints(request: RunAll) -> list[Checkpoint]:
    """Return the checkpoint of each table row, except random initializations.

    ValueError if options contradict each other.
    """
    if request.snapshots:
        return _snapshots(request)
    if not request.ckpt:
        raise ValueError("no checkpoint given. Pass --ckpt FILE, --snapshots DIR or --demo")
    for recipe in filter(None, request.declared):
        check_declared_recipe(recipe)
    paths, empty = [local_file(path) for path in request.ckpt], ("",) * len(request.ckpt)
    names = one_per_checkpoint("name", request.name, [default_name(path) for path in paths])
    branches = one_per_checkpoint("checkpoint-key", request.branch, empty)
    declared = one_per_checkpoint("trained-with", request.declared, empty)
    complete = [
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
        raise ValueError(f"--heads applies only to LooC++'s ResNets, not to {encoders[0]}")
    subsets = [tuple(split_numbers(text, "--heads", "0,2", HEADS)) for text in request.heads]
    with_heads = [replace(checkpoint, heads=heads) for heads in subsets for checkpoint in complete]
    for path in paths:
        check_is_checkpoint(path)
    return [*complete, *with_heads]


def followed_checkpoint(request: RunAll) -> Checkpoint:
    """Return the options of a followed run's checkpoints; ValueError for wrong options."""
    (network,) = networks(replace(request, ckpt=(Path(),)))
    (branch,) = one_per_checkpoint("checkpoint-key", request.branch, [""])
    (declared,) = one_per_checkpoint("trained-with", request.declared, [""])
    if declared:
        check_declared_recipe(declared)
    return Checkpoint(
        ckpt=Path(),
        branch=branch,
        declared=declared if request.declared else None,
        network=network,
        snapshot=True,
    )


def networks(request: RunAll) -> list[EncoderOptions]:
    """Return the encoder options of each checkpoint; a ResNet has none.

    A single value of an option applies to all checkpoints with an encoder. ValueError if options
    contradict each other.
    """
    count = len(request.ckpt)
    encoders = _expand_single("encoder", request.encoder, [True] * count)
    has_encoder = [bool(encoder) for encoder in encoders]
    pools = _expand_single("pool", request.pool, has_encoder)
    sizes = _expand_single("input-px", request.input_px, has_encoder)
    norm = {"input_mean": request.input_mean, "input_std": request.input_std}
    if any(norm.values()) and len(names := {*filter(None, encoders)}) > 1:
        raise ValueError(
            f"--input-mean and --input-std apply to one encoder, but {len(names)} are given. "
            "Evaluate them in separate commands, or define the values in a FILE.py:FUNCTION"
        )
    networks = []
    for encoder, pool, size, is_encoder in zip(encoders, pools, sizes, has_encoder, strict=True):
        if size and not size.isdecimal():
            raise ValueError(f"--input-px {size}: expected an integer in px, or ''")
        used_norm = norm if is_encoder or not any(has_encoder) else {}
        options = EncoderOptions(encoder=encoder, pool=pool, input_px=int(size or 0), **used_norm)
        options.check()
        networks.append(options.local())
    return networks


def _expand_single(option: str, values: Sequence[Any], uses: Sequence[bool]) -> Sequence[Any]:
    """Return a value per checkpoint; a single value applies to several.

    uses: whether a checkpoint uses a single value. If none does, it applies to all.
    """
    if len(values) == 1 and len(uses) != 1:
        return [values[0] if is_used or not any(uses) else "" for is_used in uses]
    return one_per_checkpoint(option, values, [""] * len(uses))


def random_initializations(opened: Mapping[Checkpoint, Encoder], records: Path) -> list[Checkpoint]:
    """Return a random initialization for each network of the checkpoints.

    The first is named random, further ones random-NETWORK. If an earlier run has evaluated another
    network as random, the first is named random-NETWORK as well.
    """
    by_network: dict[tuple[str, str, EncoderOptions], Checkpoint] = {}
    names: list[str] = []
    for checkpoint, encoder in opened.items():
        network = encoder.arch, encoder.stem, checkpoint.network
        if network in by_network or checkpoint.heads:
            continue
        arch = re.sub(r"^(timm|torchvision|hf):|\.py(?=:)", "", encoder.arch)
        is_further = bool(by_network) or _has_other_network(records / RANDOM, encoder)
        name = base = re.sub(r"[^\w.-]+", "-", f"{RANDOM}-{arch}") if is_further else RANDOM
        count = 1
        while name in names:  # another stem, input size or pooling of the same network
            count += 1
            name = f"{base}-{count}"
        names.append(name)
        by_network[network] = replace(checkpoint, random=True, name=name)
    return [*by_network.values()]


def _has_other_network(folder: Path, encoder: Encoder) -> bool:
    """Return whether the records in a folder belong to another network."""
    for file in sorted(folder.rglob("*.json")):
        stored = (read_json(file) or {}).get("backbone")  # a state file has only the name
        if isinstance(stored, dict):
            return (stored.get("arch"), stored.get("stem")) != (encoder.arch, encoder.stem)
    return False


def one_per_checkpoint(
    option: str, values: Sequence[str], defaults: Sequence[str]
) -> Sequence[str]:
    """Return the values or the defaults; ValueError for a wrong number."""
    if values and len(values) != len(defaults):
        raise ValueError(
            f"--{option} {' '.join(values)}: {len(values)} given for {len(defaults)} checkpoints "
            "or folders. Pass '' for one without a value"
        )
    return values or defaults


def backbones(
    request: RunAll, given: Sequence[Checkpoint] = ()
) -> tuple[dict[Checkpoint, Encoder], dict[str, str]]:
    """Return the backbone of each table row, and errors by snapshot name.

    given: checkpoints instead of those that the request names.
    The backbones have no weights. BackboneError for any other unreadable file, ValueError if
    options contradict each other.
    """
    opened: dict[Checkpoint, Encoder] = {}
    unreadable: dict[str, str] = {}

    def open_all(requested: Iterable[Checkpoint]) -> None:
        for checkpoint in requested:
            stop.exit_if_requested()
            try:
                backbone = open_checkpoint(checkpoint)
            except (BackboneError, OSError) as error:
                if not checkpoint.snapshot:
                    if len(request.encoder) == 1 < len(request.ckpt):
                        raise BackboneError(
                            f"{error}. One --encoder applies to all checkpoints; if their networks "
                            "differ, pass one per checkpoint ('' for a ResNet)"
                        ) from error
                    raise
                unreadable[str(checkpoint.name)] = str(error)
                print(f"{checkpoint.name}  failed: {error}", file=sys.stderr, flush=True)
                continue
            if backbone.name in (encoder.name for encoder in opened.values()):
                raise ValueError(
                    f"two rows are named {backbone.name!r}. Pass a different --name for each "
                    "checkpoint"
                )
            opened[checkpoint] = replace(backbone, state_dict={})

    open_all(given or checkpoints(request))
    if request.random:
        open_all(random_initializations(opened, request.settings.results / "records"))
    return opened, unreadable


def _snapshots(request: RunAll) -> list[Checkpoint]:
    """Return the snapshots of all folders, named after their curves.

    ValueError for a wrong number of names, a duplicate name, or a folder without snapshots.
    """
    snapshots = []
    curves: set[str] = set()
    defaults = [folder.resolve().parent.name for folder in request.snapshots]
    names = one_per_checkpoint("name", request.name, defaults)
    for curve, default, folder in zip(names, defaults, request.snapshots, strict=True):
        check_row_name(curve, default)
        if curve in curves:
            raise ValueError(
                f"two curves are named {curve!r}. Pass a different --name for each folder"
            )
        curves.add(curve)
        paths = sorted(folder.glob("*.pt"))
        if not paths:
            raise ValueError(
                f"{folder}: no snapshots. To write them, pre-train with --snapshot-epochs 10"
            )
        snapshots += [
            Checkpoint(ckpt=path, name=f"{curve}{CURVE_SEPARATOR}{path.stem}", snapshot=True)
            for path in paths
        ]
    return snapshots


def settle_declarations(
    rows: Sequence[PlannedCell], *, is_explicit: bool
) -> tuple[list[PlannedCell], list[str]]:
    """Make declared recipes and finished records agree.

    is_explicit: the command line has --trained-with. Without it, recipes that earlier runs declared
    are kept. Returns the updated rows and messages about the changes.
    """
    settled: dict[str, tuple[Encoder, str]] = {}
    declared_rows = []
    for row in rows:
        cell, name = row.cell, row.cell.backbone.name
        if name not in settled:
            settled[name] = settle_declaration(cell.records, cell.backbone, is_explicit=is_explicit)
        cell = cell.declared_as(settled[name][0], is_explicit=is_explicit)
        declared_rows.append(replace(row, cell=cell))
    return declared_rows, [note for _, note in settled.values() if note]
