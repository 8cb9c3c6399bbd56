"""The result file: one JSON per backbone, task, protocol and seed.

A record is written whole or not at all, and says everything needed to repeat its number. Records
that differ in what a note below a table would tell lie beside each other: the first has the cell's
own path, each other one has its engine, arithmetic and a hash in its name.
"""

import glob
import hashlib
import json
import platform
import subprocess
import sys
import time
from dataclasses import Field, asdict, dataclass, field, fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from transfer.running.atomic_files import WriteError, write_whole

PACKAGES = (
    "torch",
    "torchvision",
    "numpy",
    "pillow",
    "scikit-learn",
    "pycocotools",
    "onedl-mmsegmentation",
)


class RecordError(ValueError):
    """A result file that is torn, or not one of ours."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One finished cell, exactly as it stands in the file."""

    backbone: dict[str, Any]
    """name, arch, stem, sha256, file_sha256, source, made_by."""
    task: str
    """Id of the paper tables."""
    protocol: dict[str, Any]
    """name, hash, paper_hash, fields."""
    schedule: str
    """paper, short, smoke, or the share of the paper's length."""
    seed: int
    engine: str
    metrics: dict[str, float]
    """Percent, under the names of the paper tables."""
    details: dict[str, Any]
    """What the metrics alone do not tell: chosen rates and costs, per-class values."""
    data: dict[str, Any]
    """Per data set: fingerprint, small ("", "generated" or "excerpt"), counts, tolerated."""
    departures: list[str]
    """From the paper's protocol, each a sentence."""
    wall_s: float
    peak_memory_gb: float
    primary_metric: str = ""
    """Metric that stands for the task where there is room for one; empty in older records."""
    heading: str = ""
    """Part of the overview that shows the task; empty in older records."""
    commit: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, str] = field(default_factory=dict)
    finished: str = ""
    format: str = "ssl-record/1"


RECORDS, SNAPSHOTS = "records", "snapshots"
"""Folders of the records: below the results, and below it those of snapshots of pre-training."""
FORMER_SNAPSHOTS = "curves"
"""Folder below the results where records of snapshots were before; others lay in the results."""


def record_path(
    records: Path, backbone: str, task: str, protocol: str, schedule: str, seed: int
) -> Path:
    """Return the path of a cell's record below the folder of all records."""
    stem = f"{task}.{protocol.replace('/', '-')}.{schedule}.seed{seed}"
    return records / backbone / f"{stem}.json"


def former_path(path: Path) -> Path:
    """Return where the record of a path was before records had a folder of their own."""
    parts = path.parts
    if RECORDS not in parts[:-2]:
        return path
    place = len(parts) - 3 - parts[-3::-1].index(RECORDS)
    results, below = parts[:place], parts[place + 1 :]
    if below[0] == SNAPSHOTS:
        below = (FORMER_SNAPSHOTS, *below[1:])
    return Path(*results, *below)


def failure_path(record: Path) -> Path:
    """Where the reason lies when the cell failed."""
    return record.with_name(record.name.removesuffix(".json") + FAILED)


FAILED = ".failed.json"


def conditions(record: Record) -> dict[str, Any]:
    """Return what tells records of one cell apart: what a note below a table may say of them.

    Number of processes, engine, arithmetic, kind of data, tolerated images, departures. Neither
    weights nor data count: a record of other weights or other data is an older one.
    """
    return {
        "engine": record.engine,
        "features_in": features_in(record),
        "num_processes": int(record.details.get("num_processes", 1)),
        "data": {key: [told["small"], told["tolerated"]] for key, told in record.data.items()},
        "departures": record.departures,
    }


def features_in(record: Record) -> str:
    """Return the arithmetic of a record's frozen features."""
    return str(record.details.get("features_in", "float32"))  # records from before it was told


def record_files(path: Path) -> list[Path]:
    """Return the files of all records of a cell: its own path, and those beside it."""
    files = []
    for own in dict.fromkeys((path, former_path(path))):
        beside = own.parent.glob(f"{glob.escape(own.stem)}.*.json")
        others = sorted(file for file in beside if not file.name.endswith(FAILED))
        files += [*([own] if own.exists() else []), *others]
    return files


def newest_record(path: Path) -> Path:
    """Return the file that was written last of all records of a cell."""
    return max(record_files(path), key=lambda file: file.stat().st_mtime_ns)


def readable_records(path: Path) -> dict[Path, Record]:
    """Return the records of a cell by file, without torn and foreign ones."""
    found = {}
    for file in record_files(path):
        try:
            found[file] = read_record(file)
        except (FileNotFoundError, RecordError):
            continue
    return found


def file_of(path: Path, record: Record) -> Path:
    """Return the file where a record belongs: no record of other conditions is there.

    path: of the record's cell.
    """
    known = readable_records(path)
    mine = conditions(record)
    for file, other in known.items():
        if conditions(other) == mine:
            return file
    if path not in known:
        return path
    digest = hashlib.sha256(json.dumps(mine, sort_keys=True).encode()).hexdigest()[:8]
    words = [record.engine, *([features_in(record)] if "features_in" in record.details else [])]
    return path.with_name(f"{path.stem}.{'-'.join([*words, digest])}.json")


def hashed_fields(protocol: object) -> list[Field[Any]]:
    """The fields that make a protocol what it is: all but those marked as not hashed."""
    return [spec for spec in fields(protocol) if spec.metadata.get("hashed", True)]  # type: ignore[arg-type]


def stored_fields(protocol: object) -> dict[str, Any]:
    """Return the fields of a protocol that its record keeps, nested ones as dictionaries."""
    kept = [spec for spec in fields(protocol) if spec.metadata.get("stored", True)]  # type: ignore[arg-type]
    content = asdict(protocol)  # type: ignore[call-overload]
    return {spec.name: content[spec.name] for spec in kept}


def protocol_hash(task: str, protocol: object) -> str:
    """Twelve hex digits over the task id and every number of a protocol dataclass.

    A field marked as added counts only where it leaves its default: what was recorded before the
    field came keeps its hash.
    """
    numbers = {
        spec.name: value
        for spec in hashed_fields(protocol)
        for value in [getattr(protocol, spec.name)]
        if not (spec.metadata.get("added", False) and value == spec.default)
    }
    text = json.dumps([task, type(protocol).__name__, numbers], sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _plain(value: Any) -> Any:
    """What json can hold of a part of a protocol."""
    return asdict(value) if is_dataclass(value) else str(value)  # type: ignore[arg-type]


def write_json(path: Path, content: dict[str, Any], option: str = "") -> None:
    """Write a file whole or not at all; WriteError if that fails.

    option: the word of the command line that leads to another folder.
    """
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    write_whole(path, text.encode(), option)


def write_record(path: Path, record: Record) -> None:
    """Store a finished cell; an earlier failure of it is forgotten."""
    write_json(path, asdict(record), "--results")
    failure_path(path).unlink(missing_ok=True)


def write_failure(record: Path, content: dict[str, Any]) -> None:
    """Leave the reason of a failed cell beside its record; say so where that is not possible.

    Nothing is raised then: other cells can go on.
    """
    try:
        write_json(failure_path(record), {"format": "ssl-failure/1", **content}, "--results")
    except WriteError as error:
        print(f"the reason of a failure is not noted: {error}", file=sys.stderr, flush=True)


def store_record(path: Path, record: Record) -> Path:
    """Write the record of the cell at `path` where it replaces none of other conditions.

    An earlier failure of the cell is forgotten. Return the file.
    """
    file = file_of(path, record)
    write_record(file, record)
    for own in (path, former_path(path)):
        failure_path(own).unlink(missing_ok=True)
    return file


def read_record(path: Path) -> Record:
    """The record in a file; RecordError if the file is torn or foreign."""
    try:
        content = json.loads(path.read_text())
        if content["format"] != Record.format:
            raise RecordError(f"{path}: format {content['format']!r}, expected {Record.format!r}")
        return Record(**content)
    except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise RecordError(
            f"{path}: not a result record ({error}); delete it to recompute"
        ) from error


def surroundings() -> dict[str, Any]:
    """Commit, versions, hardware and time: what every record carries."""
    return {
        "commit": commit(),
        "versions": {name: version(name) for name in PACKAGES}
        | {"python": platform.python_version()},
        "hardware": hardware(),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def hardware() -> dict[str, str]:
    """Processor, threads and accelerator."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "machine": platform.machine(),
        "threads": str(torch.get_num_threads()),
        "accelerator": device,
    }


def commit() -> str:
    """Of this checkout, with "+" where files differ from it; empty outside a checkout."""
    here = Path(__file__).parent
    try:
        head = _git(here, "rev-parse", "--short=10", "HEAD")
        changed = _git(here, "status", "--porcelain", "--", ":/*.py")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if changed else "")


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()
