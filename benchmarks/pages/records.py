"""Reading of result files; a torn, edited or foreign file becomes a warning, never a crash."""

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.pages.published import Pretraining, published_recipes
from transfer.record import (
    RECORDS,
    SNAPSHOTS,
    Record,
    cell_path,
    conditions,
    failure_path,
    is_record_file,
    record_of,
    record_path,
)

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

SMALL_DATA = {
    "generated": "generated data",
    "excerpt": "excerpt of the data",
    "recoded": "JPEG-coded data",
    "recoded excerpt": "JPEG-coded excerpt of the data",
}
TABLES, FIGURES = "tables", "figures"
"""Folders below the results with the pages and curves that are made from the records."""
REPORT = "report"
"""Folder below the results with the HTML page."""
TRAINING_LOGS = "training"
"""Folder below the results with the logs of pre-training runs that figures show."""
OTHER_FILES = (TABLES, FIGURES, REPORT, TRAINING_LOGS, "reliability", "calibration", "gpu_check")
"""Folders and files (without .json) below the results that hold no records."""
HEAD_ENTROPY = "head_entropy_bits"
"""Detail of a record that is shown as if it were a metric."""
DECLARED = "†"
"""Sign of a backbone whose recipe a user declared."""
UNTRAINED = "random initialisation"
"""Method in the record of a backbone whose weights the suite drew itself."""
BN_SPLITS = "config.bn_splits"
"""Setting of methods with shuffled batch norm: its groups on each GPU."""
STAND_IN_TEXTURE = "randconv_luma"
"""Texture augmentation that stands in for a paper's style transfer."""


@dataclass(frozen=True, kw_only=True, order=True)
class Model:
    """Backbone as its records describe it, in one row of the tables.

    Name, hash and `other_conditions` identify the row.
    """

    name: str
    sha256: str = ""
    arch: str = field(default="", compare=False)
    stem: str = field(default="", compare=False)
    method: str = field(default="", compare=False)
    recipe: str = field(default="", compare=False)
    epochs: str = field(default="", compare=False)
    data: str = field(default="", compare=False)
    """Pre-training data; empty for foreign files, as are method, recipe and epochs."""
    changed: str = field(default="", compare=False)
    """Settings that differ from the recipe."""
    heads: tuple[str, ...] = field(default=(), compare=False)
    """Names of the used heads: the augmentation that a head is sensitive to, or "invariant". Empty
    if all heads are used."""
    untrained: bool = field(default=False, compare=False)
    """The suite drew the weights itself; there was no pre-training."""
    texture: str = field(default="", compare=False)
    """Texture augmentation of its views; empty for none."""
    source: str = field(default="", compare=False)
    declared: bool = field(default=False, compare=False)
    """The recipe is what a user declared; the file does not say how it was made."""
    last_epoch: Mapping[str, float] = field(default_factory=dict, compare=False, hash=False)
    """Means of pre-training's metrics over its last epoch; empty for older and foreign files."""
    settings: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)
    """Settings of pre-training by dotted name; empty for foreign files."""
    precision: str = field(default="", compare=False)
    """Arithmetic of pre-training; empty for older and foreign files."""
    norm_groups: int | None = field(default=None, compare=False)
    """Groups of shuffled batch norm; None for other methods, and for older and foreign files."""
    paper_norm_groups: int | None = field(default=None, compare=False)
    """Those of the recipe's paper; 0 if it does not say how many, None if nothing is shuffled."""
    other_conditions: str = ""
    """Differing conditions of a further row of the backbone; empty for its first row."""

    @property
    def label(self) -> str:
        """Return the name, the sign of a declared recipe, and the conditions of a further row."""
        name = self.name + DECLARED * self.declared
        return f"{name} ({self.other_conditions})" if self.other_conditions else name


@dataclass(frozen=True, order=True)
class RequestedCell:
    """Backbone, task, protocol with version, schedule and seed of a cell."""

    backbone: str
    task: str
    protocol: str
    schedule: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Result:
    """One finished cell."""

    model: Model
    task: str
    key: str
    """Task and reading, such as in1k_linear@co2; the task alone where the record does not say."""
    protocol: str
    """Name and version of the protocol."""
    protocol_hash: str
    paper_hash: str
    schedule: str
    seed: int
    engine: str
    metrics: Mapping[str, float] = field(hash=False)
    """Metrics in percent; head_entropy_bits in bits, for networks with several heads."""
    fingerprint: str
    """Fingerprints of all data sets of the task."""
    small: str
    """A key of SMALL_DATA if the data are not the published ones; else empty."""
    tolerated: tuple[tuple[str, int], ...]
    """Data sets with missing, surplus, repeated or unreadable images, and how many."""
    departures: tuple[str, ...]
    finished: str
    primary_metric: str
    """Name of the metric that is shown where there is room for only one."""
    heading: str
    """Heading of the task's part of the overview."""
    file: str = field(default="", compare=False)
    """Path of the record below the results."""
    details: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)
    """Everything else that the task wrote down, such as histograms over images."""
    path: Path = field(default=Path(), compare=False)
    """The record's file; files that its details name are beside it."""
    record: Record = field(compare=False)
    """Everything that the file holds."""

    @property
    def cell(self) -> RequestedCell:
        """The identity of the cell."""
        return RequestedCell(self.model.name, self.task, self.protocol, self.schedule, self.seed)


@dataclass(frozen=True, kw_only=True)
class Failure(RequestedCell):
    """One failed cell, with the reason."""

    reason: str
    primary_metric: str
    heading: str

    @property
    def cell(self) -> RequestedCell:
        """The identity of the cell."""
        return RequestedCell(self.backbone, self.task, self.protocol, self.schedule, self.seed)


@dataclass(frozen=True)
class UnusedFile:
    """A file in the results folder that is not used as a result."""

    file: str
    """Path below the results."""
    reason: str
    other: str = ""
    """Path below the results of the file that the reason refers to."""

    def __str__(self) -> str:
        """Return a line for people."""
        return f"{self.file}: not used ({' '.join(filter(None, [self.reason, self.other]))})"


@dataclass(frozen=True)
class Results:
    """Results and failures of a results folder, in the order of their paths."""

    done: tuple[Result, ...]
    failed: tuple[Failure, ...]
    warnings: tuple[UnusedFile, ...]


def require_folder(results: Path) -> None:
    """Raise FileNotFoundError without a results folder."""
    if not results.is_dir():
        raise FileNotFoundError(
            f"{results}: no such folder; expected the records of python benchmarks/run_all.py"
        )


def read_results(results: Path, *, snapshots: bool = False) -> Results:
    """Read every record and failure in a folder of results, or only those of snapshots.

    Only files at the paths where the suite writes them are used, and each cell once: copies, and
    what was renamed or moved by hand, are warnings.
    """
    records = results / RECORDS / SNAPSHOTS if snapshots else results / RECORDS
    used: dict[str, tuple[str, Result | Failure]] = {}
    misplaced, unused = [], []
    for path in sorted(results.rglob("*.json")):
        name = path.relative_to(results)
        of_snapshot = name.parts[:2] == (RECORDS, SNAPSHOTS)
        no_record = name.parts[0].removesuffix(".json") in OTHER_FILES or path.name.startswith(".")
        if no_record or of_snapshot != snapshots:
            continue
        file = name.as_posix()
        try:
            entry = _parse(json.loads(path.read_text(encoding="utf-8")), path, file)
            expected, identity = _expected_file(records, entry), _identity(entry)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            unused.append(UnusedFile(file, _reason(error)))
            continue
        if not is_record_file(path, expected):
            misplaced.append((file, entry, expected, identity))
        elif identity not in used:
            used[identity] = file, entry
        else:  # the name of a cell's first record is the shortest
            first, (copy, _) = sorted([used[identity], (file, entry)], key=lambda one: len(one[0]))
            used[identity] = first
            unused.append(UnusedFile(copy, "the same cell as", first[0]))
    for file, entry, expected, identity in misplaced:
        first_file, first_entry = used.get(identity, ("", None))
        if first_entry is None:
            where = expected.relative_to(results).as_posix()
            unused.append(UnusedFile(file, "renamed or moved; expected at", where))
        else:
            reason = "a copy of" if first_entry == entry else "another result of the cell in"
            unused.append(UnusedFile(file, reason, first_file))
    return Results(
        tuple(entry for _, entry in used.values() if isinstance(entry, Result)),
        tuple(entry for _, entry in used.values() if isinstance(entry, Failure)),
        tuple(sorted(unused, key=lambda one: one.file)),
    )


def _expected_file(records: Path, entry: Result | Failure) -> Path:
    """Return where the suite writes a failure, or the first record of a result's cell."""
    if isinstance(entry, Result):
        return cell_path(records, entry.record)
    return failure_path(record_path(records, *astuple(entry.cell)))


def _identity(entry: Result | Failure) -> str:
    """Return what two records of one cell share; weights, protocol and conditions distinguish."""
    more: list[object] = ["failed"]
    if isinstance(entry, Result):
        more = [entry.model.sha256, entry.protocol_hash, conditions(entry.record)]
    return json.dumps([astuple(entry.cell), *more], sort_keys=True)


def unused_lines(unused: Sequence[UnusedFile], results: Path) -> list[str]:
    """Return how many files of a results folder are not used, and why, with an example each."""
    if not unused:
        return []
    count = (
        f"1 file in {results} is" if len(unused) == 1 else f"{len(unused)} files in {results} are"
    )
    groups = grouped((one.reason, one) for one in unused).values()
    return [
        f"warning: {count} not used as results; benchmarks.tables lists all in tables/overview.md",
        *(f"  {len(group)}: {group[0]}{' ...' * (len(group) > 1)}" for group in groups),
    ]


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):  # a cell that succeeds meanwhile removes its failure
        return error.strerror or type(error).__name__
    what = f"no field {error}" if isinstance(error, KeyError) else str(error)
    return what.splitlines()[0] if what else type(error).__name__


def _parse(content: dict[str, Any], path: Path, file: str) -> Result | Failure:
    if content["format"] == "ssl-failure/1":
        names = ("backbone", "task", "protocol", "schedule", "primary_metric", "heading")
        reason = " ".join(content["reason"].split()).rstrip(":")
        seed = int(content["seed"])
        return Failure(**{name: content[name] for name in names}, seed=seed, reason=reason)
    if content["format"] != Record.format:
        expected = f"expected {Record.format} or ssl-failure/1"
        raise ValueError(f"format {content['format']!r}, {expected}")
    return replace(result_of(record_of(content), path), file=file)


def result_of(record: Record, path: Path) -> Result:
    """Return a record as tables read it."""
    data, details = record.data, record.details
    extra = {name: details[name] for name in (HEAD_ENTROPY,) if name in details}
    return Result(
        model=model_of(record.backbone, record.declared),
        task=record.task,
        key=record.request.get("task", record.task),
        protocol=record.protocol["name"],
        protocol_hash=record.protocol["hash"],
        paper_hash=record.protocol["paper_hash"],
        schedule=record.schedule,
        seed=int(record.seed),
        engine=record.engine,
        metrics={name: float(value) for name, value in (record.metrics | extra).items()},
        fingerprint=" ".join(f"{key}:{data[key]['fingerprint']}" for key in sorted(data)),
        small=max((str(entry["small"]) for entry in data.values()), default=""),
        tolerated=tuple(
            (key, int(data[key]["tolerated"])) for key in sorted(data) if data[key]["tolerated"]
        ),
        departures=tuple(record.departures),
        finished=record.finished,
        primary_metric=record.primary_metric,
        heading=record.heading,
        details=details,
        path=path,
        record=record,
    )


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key; keys and values are in the order of the pairs."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def model_of(content: dict[str, Any], declared: str = "") -> Model:
    """Return the backbone that a record describes; `declared` is the user's recipe for it."""
    made_by = content.get("made_by") or {}
    if declared and not made_by:
        known = published_recipes().get(declared, Pretraining())
        made_by = {"method": declared.partition("/")[0], "recipe": declared}
        made_by |= {"epochs": known.epochs or "", "data": known.data or ""}
    origin = {
        key: value_words(made_by.get(key, "")) for key in ("method", "recipe", "epochs", "data")
    }
    settings, changed = made_by.get("settings") or {}, {*(made_by.get("changed") or {})}
    groups = made_by.get("batch_norm_groups") if BN_SPLITS in settings else None
    published = published_recipes().get(origin["recipe"])
    of_paper = published.norm_groups if published else settings.get("norm_groups") or None
    if groups is not None and of_paper is not None:
        changed.discard(BN_SPLITS)  # the product with the GPUs counts, and is compared
    return Model(
        name=content["name"],
        sha256=content["sha256"],
        arch=content["arch"],
        stem=content["stem"],
        source=content.get("source", ""),
        texture=value_words(made_by.get("texture") or ""),
        changed=", ".join(sorted(changed)),
        heads=tuple(made_by.get("heads", ())),
        declared=bool(declared),
        last_epoch=made_by.get("last_epoch") or {},
        settings=settings,
        norm_groups=groups,
        paper_norm_groups=of_paper,
        precision=value_words(made_by.get("precision") or ""),
        untrained=origin["method"] == UNTRAINED,
        **origin,
    )


def value_words(value: Any, between: str = " ") -> str:
    """Return a value in words; numbers without superfluous digits, lists with `between`."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {value_words(one, between)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return between.join(value_words(one, between) for one in value) or "none"
    return str(value)


def machine(record: Record) -> str:
    """Return the machine of a record in words."""
    hardware = dict(record.hardware)
    accelerator = hardware.pop("accelerator", "none")
    words = [] if accelerator == "none" else [accelerator]
    words += [f"{name} {value}" for name, value in hardware.items()]
    return ", ".join(words) or "unknown"
