"""Read the records and failures of results folders as rows.

Unusable files become warnings.
"""

import json
import os
import re
import sys
from collections.abc import Hashable, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results.published import Pretraining, published_recipes
from benchmarks.words import RUN_ALL, grouped, plural, tolerated_notes, value_words
from transfer.frozen.rankme import RANKME
from transfer.record import (
    RECORDS,
    SNAPSHOTS,
    STATE_FORMAT,
    UNTRAINED,
    Record,
    conditions,
    features_in,
    is_record_file,
    record_of,
    record_path,
    state_path,
)

SMALL_DATA = {
    "generated": "generated data",
    "excerpt": "subset of the data",
    "recoded": "JPEG-coded data",
    "recoded excerpt": "JPEG-coded subset of the data",
}
RENAMED_SOURCE_TERMS = {
    "proven: outputs": "verified: outputs",
    "proven: values": "verified: weights",
    "as asked for": "as requested",
    "pooling of its own": "pooling by the network",
}
"""Current terms for a backbone's source, by earlier wording."""
RENAMED_GROUPS = {"Few labels": "Semi-supervised"}
"""Current names of task groups by their names in earlier records."""
TABLES, FIGURES = "tables", "figures"
"""Subfolders with the pages and curves made from the records."""
REPORT = "report"
"""Folder in the results folder with the HTML report."""
TRAINING_LOGS = "training"
"""Subfolder with the pre-training logs that figures show."""
OTHER_FILES = (TABLES, FIGURES, REPORT, TRAINING_LOGS, "reference", "reliability", "gpu_check")
"""Subfolders and files (without .json) of a results folder that hold no records."""
HEAD_ENTROPY = "head_entropy_bits"
"""Detail of a record that is shown as a metric."""
DECLARED = "†"
"""Sign of a backbone with a recipe declared by a user."""
BN_SPLITS = "config.bn_splits"
"""Setting of methods with shuffled batch norm: its groups on each GPU."""
STAND_IN_TEXTURE = "randconv_luma"
"""Texture augmentation that replaces a paper's style transfer."""
SCHEDULES = ("paper", "short", "smoke")
CURVE_SEPARATOR = "@"
"""Separator of run and snapshot in the name of a backbone."""
RANDOM = "random"
"""Method of a network that was exported before its first training step."""


class CellId(NamedTuple):
    """Identity of an evaluation."""

    backbone: str
    task: str
    protocol: str
    """Name and version."""
    schedule: str
    seed: int


class Conditions(NamedTuple):
    """Words for each condition that the runs of one mean must share."""

    features: str = ""
    engine: str = ""
    processes: str = ""
    data: str = ""
    tolerated: str = ""
    crops: str = ""
    departures: str = ""


INPUT_FIELDS = ("crop_px", "resize_px", "std")
"""Protocol fields that follow from a network's input size and normalization."""


class Comparison(NamedTuple):
    """Key of records that may be compared with each other.

    This is the one rule: the same task under the same protocol, apart from settings that follow
    from the network's input; the same length; the same data. Networks and pre-training may differ.
    """

    key: str
    """Task and protocol variant."""
    protocol: str
    """Name and version."""
    fields: str
    """Protocol settings without INPUT_FIELDS, or the protocol's hash if it has none."""
    length: str
    """Schedule as text; empty for the paper's."""
    data: str
    """Fingerprints of the datasets; empty for full data."""

    @property
    def description(self) -> str:
        """Return which records a record may be compared with."""
        of_input = f"settings of the network's input ({', '.join(INPUT_FIELDS)})"
        data = f"on the same images ({self.data})" if self.data else "on full data"
        return (
            f"every record of {self.key} under {self.protocol} with the same settings, apart from "
            f"{of_input}; {self.length or 'paper schedule'}; {data}; any network and "
            "any pre-training"
        )


class Reasons(NamedTuple):
    """Reasons against a comparison with the papers' numbers, as texts.

    All are empty if the number may be compared.
    """

    length: str = ""
    altered: str = ""
    """The protocol has another hash than the paper's, at the paper's schedule."""
    data: str = ""
    """The data are small or incomplete."""
    protocol: str = ""
    """A page expects another protocol."""
    version: int = 0
    """Not 0: another number of the column has newer settings or data (1: the second newest)."""

    @property
    def comparable(self) -> bool:
        """Return whether there is no reason."""
        return self == Reasons()

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the reasons, apart from newer settings or data."""
        return tuple(filter(None, self[:-1]))

    @property
    def text(self) -> str:
        """Return these reasons, or the conditions of comparable numbers."""
        return ", ".join(self.texts) or "paper schedule, full data"

    @property
    def heading(self) -> str:
        """Return all reasons as a heading."""
        text = (
            f"{self.text}, other settings or data ({self.version})" if self.version else self.text
        )
        return text[0].upper() + text[1:]

    @property
    def sort_key(self) -> tuple[bool, str, tuple[str, ...], int]:
        """Return the order of tables.

        The paper's schedule comes first, shares of it such as 0.02 come last. The newest version
        comes first.
        """
        return self.length[:1].isdigit(), self.length, self.texts, self.version

    @property
    def of_runs(self) -> "Reasons":
        """Return the reasons without the protocol that a page expects."""
        return self._replace(protocol="")


Identity = tuple[str, str]
"""Name of a backbone, and hash of its weights."""


class Backbone(NamedTuple):
    """The facts on one backbone that tables and figures use."""

    name: str
    sha256: str = ""
    arch: str = ""
    stem: str = ""
    source: str = ""
    method: str = ""
    """Method of pre-training; empty for third-party checkpoints, as is the following."""
    recipe: str = ""
    epochs: str = ""
    step: str = ""
    """Step of pre-training that a checkpoint of a followed run states."""
    modified: str = ""
    """Time of the file of a followed run, in UTC; empty for other backbones."""
    data: str = ""
    changed: str = ""
    """Settings that differ from the recipe."""
    heads: tuple[str, ...] = ()
    """Names of the used heads; empty if all are used.

    A name is the augmentation that a head is sensitive to, or "invariant".
    """
    texture: str = ""
    precision: str = ""
    declared: bool = False
    """A user declared the recipe, which the file does not record."""
    last_epoch: Mapping[str, float] = {}
    """Means of the metrics of pre-training over its last epoch."""
    settings: Mapping[str, Any] = {}
    """Settings of pre-training by dotted name."""
    norm_groups: int | None = None
    """Groups of shuffled batch norm; None if unknown or not used."""
    paper_norm_groups: int | None = None
    """Groups in the recipe's paper; 0 if not stated, None without shuffling."""
    folder: str = ""
    """Results folder, relative to the first one.

    Only if several folders are read and two backbones have this name.
    """

    @property
    def identity(self) -> Identity:
        """Return name and weights."""
        return self.name, self.sha256

    @property
    def label(self) -> str:
        """Return the name, with the sign of a declared recipe."""
        return self.name + DECLARED if self.declared else self.name

    @property
    def is_untrained(self) -> bool:
        """Return whether the suite drew the weights itself; there was no pre-training."""
        return self.method == UNTRAINED

    @property
    def is_random(self) -> bool:
        """Return whether the weights are random."""
        return self.method in (UNTRAINED, RANDOM)


class Run(NamedTuple):
    """One record, or one failure (without metrics, with its reason)."""

    backbone: Backbone
    task: str
    protocol: str
    """Name and version."""
    schedule: str
    seed: int
    primary_metric: str
    """Metric that is shown if there is room for only one."""
    heading: str
    """Heading of the task's part of the overview."""
    file: str
    """Path of the file in the results folder."""
    path: Path
    reasons: Reasons = Reasons()
    failure: str = ""
    """Why the cell failed; empty for a record."""
    key: str = ""
    """Task and protocol variant, such as in1k_linear@co2, or the task alone."""
    fingerprint: str = ""
    """Fingerprints of all datasets of the task."""
    small: str = ""
    """A key of SMALL_DATA; empty for the published data."""
    tolerated: tuple[tuple[str, int], ...] = ()
    """Datasets with missing, surplus, repeated or unreadable images, and how many."""
    conditions: Conditions = Conditions()
    metrics: Mapping[str, float] = {}
    """Metrics in percent.

    Also head_entropy_bits in bits, for networks with several heads, and rankme, for followed runs.
    """
    details: Mapping[str, Any] = {}
    """Everything else that the task stored, such as histograms over images."""
    stored: Record | None = None
    """Everything that the file holds; None for a failure."""

    @property
    def record(self) -> Record:
        """Return everything that the file holds; ValueError for a failure."""
        if self.stored is None:
            raise ValueError(f"{self.file}: a failure has no record")
        return self.stored

    @property
    def protocol_name(self) -> str:
        """Return the protocol without its version: another version has another hash."""
        return self.protocol.partition("/")[0]

    @property
    def cell(self) -> CellId:
        """Return the identity of the evaluation."""
        return CellId(self.backbone.name, self.task, self.protocol, self.schedule, self.seed)

    @property
    def comparison(self) -> Comparison:
        """Return the key of runs that this run may be compared with."""
        protocol = self.record.protocol
        fields = dict(protocol["fields"])
        of_input = {name: fields.pop(name) for name in INPUT_FIELDS if name in fields}
        return Comparison(
            key=self.key,
            protocol=self.protocol,
            fields=json.dumps(fields, sort_keys=True) if of_input else protocol["hash"],
            length=self.reasons.length,
            # fingerprints of full data differ between images and arrays, so they are not compared
            data=self.fingerprint if self.small or self.tolerated else "",
        )


class Results(NamedTuple):
    """Rows of a results folder, sorted by path, and unused files."""

    runs: list[Run]
    """Records, then failures."""
    snapshots: list[Run]
    """The same for the snapshots of pre-training runs."""
    unused: list[str]
    """A line per unused file, with the reason."""

    @property
    def succeeded(self) -> list[Run]:
        """Return the records, without snapshots."""
        return [run for run in self.runs if not run.failure]


def require_folder(results: Path) -> None:
    """Raise FileNotFoundError without a results folder."""
    if not results.is_dir():
        raise FileNotFoundError(
            f"{results}: no such folder; expected the --results folder of `{' '.join(RUN_ALL)}`. "
            "This suite's own records are in results/reference of its repository"
        )


def read_results(results: Path, further_folders: Sequence[Path] = ()) -> Results:
    """Read all records and failures of one or several results folders.

    Only files at the paths where the suite writes them are used, and each evaluation once: copies,
    and files that were renamed or moved by hand, are warnings. The records folder, and the folder
    of a row, may be a link to another disk.

    further_folders: further results folders. Their files are named relative to the first folder; an
    evaluation that is in several folders is read from the first of them.
    """
    used: dict[tuple[str, Hashable], Run] = {}
    folder_of: dict[Path, Path] = {}
    unused = []
    for folder in (results, *further_folders):
        names = glob("**/*.json", root_dir=folder, recursive=True)  # noqa: PTH207, it follows links
        names = [n for n in names if Path(n).parts[0].removesuffix(".json") not in OTHER_FILES]
        # an evaluation's first record has the shortest name
        for path in sorted((folder / name for name in names), key=lambda p: (len(p.name), p)):
            file, records = _relative(path, results), folder / RECORDS
            if path.is_relative_to(records / SNAPSHOTS):
                records /= SNAPSHOTS
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
                if content["format"] == STATE_FORMAT and content["state"] != "failed":
                    continue  # the result is in its record, if it has one
                run = _parse(content, path, file)
                expected = record_path(records, *run.cell)
                expected = state_path(expected) if run.failure else expected
                identity = records.name, _identity(run)
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                unused.append(f"{file}: not used ({reason_of(error)})")
                continue
            if not is_record_file(path, expected):
                reason = f"copied, renamed or moved; expected at {_relative(expected, results)}"
                unused.append(f"{file}: not used ({reason})")
            elif (first := used.setdefault(identity, run)) is not run:
                unused.append(f"{file}: not used (the same cell as {first.file})")
            else:
                folder_of[path] = folder
    folders = [results, *further_folders]
    rows = sorted(
        used.values(),
        key=lambda run: (bool(run.failure), folders.index(folder_of[run.path]), run.path),
    )
    if further_folders:
        ended = {run.cell for run in rows if not run.failure}
        rows = [run for run in rows if not (run.failure and run.cell in ended)]
        weights = grouped(run.backbone.identity for run in rows)
        for i, run in enumerate(rows):
            if len({*weights[run.backbone.name]}) > 1:
                name = _relative(folder_of[run.path], results.parent)
                rows[i] = run._replace(backbone=run.backbone._replace(folder=name))
    kinds = {run.path: kind for (kind, _), run in used.items()}
    of_kind = grouped((kinds[run.path], run) for run in rows)
    return Results(of_kind.get(RECORDS, []), of_kind.get(SNAPSHOTS, []), sorted(unused))


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _identity(run: Run) -> Hashable:
    """Return the identity of a result: evaluation, weights, protocol, conditions."""
    if run.failure:
        return run.cell
    of_run = json.dumps(conditions(run.record), sort_keys=True)
    return run.cell, run.backbone.sha256, run.record.protocol["hash"], of_run


def unused_lines(unused: Sequence[str], results: Path) -> list[str]:
    """Return how many files are not used, and an example per reason."""
    if not unused:
        return []
    reasons = [re.split(r";| as ", line.partition(": not used (")[2])[0] for line in unused]
    by_reason = grouped(zip(reasons, unused, strict=True))
    return [
        f"warning: not used as results: {plural(len(unused), 'file')} in {results}; "
        "benchmarks.tables lists all in tables/overview.md",
        *(
            f"  {len(group)}: {group[0]}{' ...' if group[1:] else ''}"
            for group in by_reason.values()
        ),
    ]


def print_unused(unused: Sequence[str], results: Path) -> None:
    """Print `unused_lines` to stderr."""
    for line in unused_lines(unused, results):
        print(line, file=sys.stderr)


def reason_of(error: Exception) -> str:
    """Return why a file is not a record, on one line."""
    if isinstance(error, OSError):  # such as a failure that its success removes in the meantime
        return error.strerror or type(error).__name__
    text = f"no field {error}" if isinstance(error, KeyError) else str(error)
    return text.splitlines()[0] if text else type(error).__name__


def _parse(content: dict[str, Any], path: Path, file: str) -> Run:
    if content["format"] == STATE_FORMAT:
        names = ("task", "protocol", "schedule", "primary_metric")
        return Run(
            Backbone(content["backbone"], content["sha256"]),
            **{name: content[name] for name in names},
            heading=RENAMED_GROUPS.get(content["heading"], content["heading"]),
            seed=int(content["seed"]),
            reasons=Reasons(
                length=_length(content["schedule"]), data=SMALL_DATA.get(content["small"], "")
            ),
            failure=" ".join(content["reason"].split()).rstrip(":") or "unknown",
            file=file,
            path=path,
        )
    if content["format"] != Record.format:
        expected = f"expected {Record.format} or {STATE_FORMAT}"
        raise ValueError(f"format {content['format']!r}, {expected}")
    return run_of_record(record_of(content), path, file)


def run_of_record(record: Record, path: Path, file: str = "") -> Run:
    """Return a record as a row."""
    data, details, protocol = record.data, record.details, record.protocol
    small = max((str(entry["small"]) for entry in data.values()), default="")
    tolerated = tuple((key, n) for key in sorted(data) if (n := int(data[key]["tolerated"])))
    is_altered = record.schedule == "paper" and protocol["hash"] != protocol["paper_hash"]
    further_metrics = {HEAD_ENTROPY: details.get(HEAD_ENTROPY)}
    further_metrics[RANKME] = details.get(RANKME, {}).get("value")
    metrics = record.metrics | {k: v for k, v in further_metrics.items() if v is not None}
    stored = conditions(record)
    norm = f" with {stored['shared_norm']}" if stored["shared_norm"] else ""
    backbone = backbone_of(record.backbone, record.declared)
    origin = record.request.get("checkpoint", {}).get("origin") or {}
    if origin.get("file"):
        of_file = {"step": origin["step"], "modified": origin["modified"]}
        backbone = backbone._replace(epochs=backbone.epochs or origin["epoch"], **of_file)
    return Run(
        backbone,
        record.task,
        protocol["name"],
        record.schedule,
        int(record.seed),
        record.primary_metric,
        heading=RENAMED_GROUPS.get(record.heading, record.heading),
        reasons=Reasons(
            length=_length(record.schedule),
            altered="altered protocol" if is_altered else "",
            data=SMALL_DATA[small] if small else "incomplete data" if tolerated else "",
        ),
        key=record.request.get("task", record.task),
        fingerprint=" ".join(f"{key}:{data[key]['fingerprint']}" for key in sorted(data)),
        small=small,
        tolerated=tolerated,
        conditions=Conditions(
            features=f"features in {features_in(record)}",
            engine=f"engine {record.engine}",
            processes=plural(stored["num_processes"], "process", "es") + norm,
            data=SMALL_DATA.get(small, "incomplete data" if tolerated else "full data"),
            tolerated="; ".join(tolerated_notes(tolerated)) or "nothing tolerated",
            crops=str(details.get("crops") or "crops/1"),  # older records do not store it
            departures="; ".join(record.departures) or "no deviation",
        ),
        metrics={name: float(value) for name, value in metrics.items()},
        details=details,
        file=file,
        path=path,
        stored=record,
    )


def backbone_of(content: Mapping[str, Any], declared: str = "") -> Backbone:
    """Return the facts on the backbone of a record.

    declared: recipe that the user declared for it.
    """
    made_by = content.get("made_by") or {}
    if declared and not made_by:
        published = published_recipes().get(declared, Pretraining())
        made_by = {"method": declared.partition("/")[0], "recipe": declared}
        made_by |= {"epochs": published.epochs or "", "data": published.data or ""}
    texts = {k: value_words(made_by.get(k, "")) for k in ("method", "recipe", "epochs", "data")}
    texts |= {k: value_words(made_by.get(k) or "") for k in ("texture", "precision")}
    settings, changed = made_by.get("settings") or {}, {*(made_by.get("changed") or {})}
    groups = made_by.get("batch_norm_groups") if BN_SPLITS in settings else None
    recipe = published_recipes().get(texts["recipe"])
    of_paper = recipe.norm_groups if recipe else settings.get("norm_groups") or None
    if groups is not None and of_paper is not None:
        changed.discard(BN_SPLITS)  # bn_splits times the number of GPUs is compared instead
    source = content.get("source", "")
    for earlier, current in RENAMED_SOURCE_TERMS.items():
        source = source.replace(earlier, current)
    return Backbone(
        **{name: content[name] for name in ("name", "sha256", "arch", "stem")},
        **texts,
        source=source,
        changed=", ".join(sorted(changed)),
        heads=tuple(made_by.get("heads", ())),
        declared=bool(declared),
        last_epoch=made_by.get("last_epoch") or {},
        settings=settings,
        norm_groups=groups,
        paper_norm_groups=of_paper,
    )


def _length(schedule: str) -> str:
    return schedule_words(schedule) if schedule != "paper" else ""


def schedule_words(schedule: str) -> str:
    """Return words such as "smoke schedule", or "0.02-length schedule" for a share."""
    return f"{schedule} schedule" if schedule in SCHEDULES else f"{schedule}-length schedule"
