"""The command that makes a record's number again, and whether it would find the record."""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.pages.checkpoint_lines import value_words
from benchmarks.pages.overview import CURVE_SEPARATOR
from benchmarks.pages.records import UNTRAINED
from pretrain.running.processes import assume_gpus
from transfer.backbone import Backbone, InputFormat
from transfer.convert.architectures import network_words
from transfer.encoders.options import EncoderOptions
from transfer.finetuning.options import TrainingOptions
from transfer.record import (
    RECORDS,
    SNAPSHOTS,
    Record,
    features_in,
    protocol_hash,
    record_path,
    stored_fields,
)
from transfer.tasks import TASKS, reading_of
from transfer.tasks.task import Task

DEFAULT_RESULTS = Path("results")
NOWHERE = Path(os.devnull) / "none"
"""Folder without data sets."""
UNKNOWN_FILE = "FILE"
FILE_NAME = re.compile(r"(.+?): [^,]+ layout\b")
BRANCH = re.compile(r"\(asked for by --branch (.+?)\)(?=$|;|,)")
HEADS = re.compile(r", heads (\d+(?:\+\d+)*) of \d+")
CONTRADICTED = " fit another "
"""Parts of a backbone's `source`."""


@dataclass(frozen=True)
class Again:
    """How to make a record again."""

    command: str
    notes: tuple[tuple[str, str], ...]
    """Meanings of the words in capitals, and all else that the command does not say, by label."""
    cached: str
    """Sentence that says whether the command would find the record, with the reason if not."""


@dataclass(frozen=True)
class Place:
    """Results folder of a record."""

    results: Path
    of_snapshot: bool
    """The backbone is a snapshot of pre-training, which has its own records folder and command."""


@dataclass(frozen=True)
class Planned:
    """Task as the record's request would plan it."""

    key: str
    task: Task
    options: TrainingOptions
    differing: tuple[str, ...]
    """Names of the protocol's numbers that the request does not give as recorded."""
    classifier: str
    """Hash of the protocol that trains the task's classifier; empty if it uses none."""


def make_again(record: Record, path: Path) -> Again | None:
    """Return how to make a record again; None if this version has no such task."""
    key = key_of(record.task, record.protocol["name"])
    if key is None:
        return None
    place = find_place(record, path)
    of_snapshot = place is not None and place.of_snapshot
    planned: Planned | None = None
    why = ""
    try:
        planned = plan_again(record, key)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"no: the stored request gives no protocol ({' '.join(str(error).split())})"
    words = _snapshot_words if of_snapshot else _cell_words
    command = shlex.join([*words(record, key, planned), *_shared_words(record, key, place)])
    return Again(
        command=command,
        notes=tuple(_notes(record, place)),
        cached=why if planned is None else _cached(record, planned, path, place),
    )


def key_of(task: str, protocol: str) -> str | None:
    """Return the key of a task and protocol; None if this version has no such task."""
    keys = [key for key in TASKS if reading_of(key)[0] == task]
    exact = (key for key in keys if TASKS[key].protocol == protocol)
    drawn = (key for key in keys if TASKS[key].with_data(NOWHERE).protocol == protocol)
    return next(exact, None) or next(drawn, None)


def flat_fields(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the numbers of a protocol by name; those of a nested part as "recipe.iterations"."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            flat |= flat_fields(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def fields_of(task: Task) -> dict[str, Any]:
    """Return the numbers of a protocol as its record would hold them, by flat name."""
    return flat_fields(json.loads(json.dumps(stored_fields(task))))


def plan_again(record: Record, key: str) -> Planned:
    """Return what the record's request would plan; ValueError or TypeError if it is none."""
    asked = {
        part: {name: _as_asked(value) for name, value in values.items()}
        for part, values in record.request.items()
        if isinstance(values, Mapping)
    }
    options = TrainingOptions(**asked["options"])
    names = ("name", "arch", "stem", "sha256", "file_sha256", "source", "made_by")
    backbone = Backbone(
        **{name: record.backbone.get(name, "") for name in names},
        state_dict={},
        input=InputFormat(**asked["input"]),
    )

    def planned(key: str) -> Task:
        return TASKS[key].at_schedule(record.schedule).for_backbone(backbone).with_options(options)

    # the GPUs of this machine must not matter, and to count them may take an import of torch
    with assume_gpus(options.gpus or 1):
        task, classifier = planned(key), ""
        if task.needs:
            classifier = protocol_hash(reading_of(task.needs)[0], planned(task.needs))
    if task.protocol != record.protocol["name"]:
        task = task.with_data(NOWHERE)
    recorded = flat_fields(record.protocol["fields"])
    return Planned(key, task, options, _differing(task, recorded), classifier)


def _as_asked(value: Any) -> Any:
    """Return a value of a request; JSON has lists for tuples."""
    return tuple(value) if isinstance(value, list) else value


def _differing(task: Task, recorded: Mapping[str, Any]) -> tuple[str, ...]:
    planned = fields_of(task)
    names = dict.fromkeys((*recorded, *planned))
    return tuple(name for name in names if planned.get(name) != recorded.get(name))


def find_place(record: Record, path: Path) -> Place | None:
    """Return the results folder in which a command looks for this record; None elsewhere."""
    for results, of_snapshot in product(path.parents, (False, True)):
        first = _path_below(results, record, of_snapshot=of_snapshot)
        # records of other conditions have a longer name
        named = path.name == first.name or path.name.startswith(f"{first.stem}.")
        if path.parent == first.parent and named:
            return Place(results, of_snapshot)
    return None


def _path_below(results: Path, record: Record, *, of_snapshot: bool = False) -> Path:
    """Return the path of the first record of the cell below a results folder."""
    folder = results / RECORDS / SNAPSHOTS if of_snapshot else results / RECORDS
    name, protocol = str(record.backbone["name"]), str(record.protocol["name"])
    return record_path(folder, name, record.task, protocol, record.schedule, record.seed)


def _cell_words(record: Record, key: str, planned: Planned | None) -> Iterator[str]:
    """Yield the words of the command that evaluates one cell.

    run_all.py would plan more: the whole network beside some of its heads, the checkpoint beside
    its random twin, and all readings of a task.
    """
    source = str(record.backbone.get("source", ""))
    yield from ("python", "-m", "transfer", key, "--ckpt", file_word(record))
    if is_random(record):
        yield "--random"
    else:
        name, heads = str(record.backbone["name"]), HEADS.search(source)
        yield from ("--name", name.removesuffix(f"-heads{heads[1]}") if heads else name)
        if branch := BRANCH.search(source):
            yield from ("--branch", branch[1])
        if record.declared:
            yield from ("--as", record.declared)
        if CONTRADICTED in source:
            yield "--trust-topology"
        asked = record.request.get("encoder", {})
        yield from EncoderOptions(**{k: _as_asked(v) for k, v in asked.items()}).words
        if heads:
            yield from ("--heads", *heads[1].split("+"))
    yield from ("--seed", str(record.seed))
    yield from planned.options.words() if planned else ()


def _snapshot_words(record: Record, key: str, planned: Planned | None) -> Iterator[str]:
    """Yield the words of the command that evaluates the snapshots of a run."""
    curve = str(record.backbone["name"]).rpartition(CURVE_SEPARATOR)[0]
    yield from ("python", "benchmarks/run_all.py", "--snapshots", "DIR", "--name", curve)
    yield from ("--tasks", key)


def _shared_words(record: Record, key: str, place: Place | None) -> Iterator[str]:
    yield from ("--data", "DATA", "--schedule", record.schedule)
    if place is not None and place.results != DEFAULT_RESULTS:
        yield from ("--results", str(place.results))
    tolerated = max((int(told["tolerated"]) for told in record.data.values()), default=0)
    if tolerated:
        yield from ("--tolerate", str(tolerated))
    if not TASKS[key].trains_backbone and _classifier_arithmetic(record) == features_in(record):
        yield from ("--features-in", features_in(record))


def file_word(record: Record) -> str:
    """Return the checkpoint's path as it was given, else its name, or a word to replace by it."""
    if given := str(record.request.get("ckpt", "")):
        return f"./{given}" if given.startswith("-") else given
    name = FILE_NAME.match(str(record.backbone.get("source", "")))
    if name is None or is_random(record) or not name[1].isprintable():
        return UNKNOWN_FILE
    return f"./{name[1]}" if name[1].startswith("-") else name[1]


def is_random(record: Record) -> bool:
    """Return whether the suite drew the weights itself."""
    return (record.backbone.get("made_by") or {}).get("method") == UNTRAINED


def _classifier_arithmetic(record: Record) -> str:
    """Return the arithmetic that the classifier was trained on; the record's own if it has none."""
    return str(record.details.get("classifier_features_in", features_in(record)))


def _notes(record: Record, place: Place | None) -> Iterator[tuple[str, str]]:
    if place is not None and place.of_snapshot:
        yield "DIR", f"the run's folder of snapshots. {_snapshot_file(record)}"
    elif is_random(record):
        yield file_word(record), _network_of(record)
    else:
        yield file_word(record), _hash_of_file(record)
    data = ", ".join(f"{name} {_data_words(told)}" for name, told in record.data.items())
    generated = any(told["small"] == "generated" for told in record.data.values())
    written = "; python -m transfer generate-data writes them" if generated else ""
    yield "DATA", f"the folder of all data sets, with {data}{written}"
    if _classifier_arithmetic(record) != features_in(record):
        yield (
            "arithmetic",
            f"the classifier was trained on features in {_classifier_arithmetic(record)}, those of "
            f"the test are in {features_in(record)}; --features-in would choose one for both, so "
            "the command leaves it out. bfloat16 is chosen on a GPU, float32 elsewhere",
        )
    if record.engine == "detectron2" and find_spec("detectron2") is None:
        yield "engine", "detectron2 is not installed here, and the command needs it"


def _data_words(told: Mapping[str, object]) -> str:
    small = f"{told['small']} version, " if told["small"] else ""
    return f"({small}fingerprint {told['fingerprint']})"


def _hash_of_file(record: Record) -> str:
    backbone = record.backbone
    known = "the checkpoint"
    if file_word(record) != UNKNOWN_FILE:
        known += ", which had this name; the record does not hold its folder"
    if backbone.get("file_sha256"):
        return f"{known}. The sha256 of the file is {backbone['file_sha256']}"
    return (
        f"{known}. The record does not hold the hash of the file, only that of the tensors that "
        f"were read from it: {backbone['sha256']}"
    )


def _snapshot_file(record: Record) -> str:
    name = str(record.backbone["name"]).rpartition(CURVE_SEPARATOR)[2]
    file_sha256 = record.backbone.get("file_sha256")
    known = f"the sha256 of the file is {file_sha256}" if file_sha256 else "its hash is not known"
    return (
        f"The record is that of {name}.pt in it, and {known}; a folder with this file alone gives "
        "this cell alone, since the command plans one for each snapshot"
    )


def _network_of(record: Record) -> str:
    """Return which checkpoints have the network of a random initialization."""
    backbone = record.backbone
    form = record.request["input"]
    told = {"size_px": "size in px", "mean": "mean", "std": "deviation"}
    held = " and ".join(f"{told[part]} {value_words(form[part])}" for part in told if part in form)
    unknown = " and ".join(name for part, name in told.items() if part not in form)
    return (
        f"any checkpoint of a {network_words(backbone['arch'], backbone['stem'])}"
        + (f" for images of {held}" if held else "")
        + (f"; the record does not hold their {unknown}" if unknown else "")
        + ". The command takes network and input from it, not the weights. The hash of network, "
        f"input and drawn weights is {backbone['sha256']}"
    )


def _cached(record: Record, planned: Planned, path: Path, place: Place | None) -> str:
    """Return whether the command would find the record, and if not, the first reason."""
    made_by = record.backbone.get("made_by") or {}
    if why := _why_other_protocol(record, planned, place):
        return f"no: {why}"
    if planned.classifier != record.details.get("classifier", ""):
        return "no: the protocol of the classifier that the task uses has changed since"
    if is_random(record) and made_by.get("seed", 0) != 0:
        return f"no: the weights were drawn by seed {made_by['seed']}, and the command draws by 0"
    if place is None:
        expected = _path_below(DEFAULT_RESULTS, record)
        return f"no: the command would look for {expected}, and this record is not there ({path})"
    file = file_word(record)
    if place.of_snapshot:
        same = "DIR holds the snapshot of the record"
    elif is_random(record):
        same = f"{file} has the same network and input"
    else:
        same = f"{file} is the file of the record"
    fingerprints = ", ".join(f"{one} {told['fingerprint']}" for one, told in record.data.items())
    return f"yes, as long as {same} and DATA has the fingerprint of the record: {fingerprints}"


def _why_other_protocol(record: Record, planned: Planned, place: Place | None) -> str:
    """Return why the command would plan another protocol hash; empty if it plans the record's."""
    protocol = record.protocol
    if protocol_hash(record.task, planned.task) == protocol["hash"]:
        return ""
    if protocol_hash(record.task, TASKS[planned.key]) != protocol["paper_hash"]:
        return "the numbers of the protocol have changed since"
    if not planned.differing:
        return "the protocol's hash is another one, although all of its recorded numbers are these"
    command = "run_all.py --snapshots" if place and place.of_snapshot else "the command"
    return f"no option of {command} gives {', '.join(planned.differing)} as recorded"
