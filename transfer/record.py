"""The result file: one JSON per backbone, task, protocol and seed.

A record is written atomically and contains everything needed to reproduce its number. Its file also
has a hash of this content, so that an edited record is not used.

One cell may have several records with different `conditions` in the same folder. The first has the
cell's own path; the names of the others contain engine, precision and a hash.
"""

import glob
import hashlib
import json
import platform
import re
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import Field, asdict, dataclass, field, fields, is_dataclass
from importlib.metadata import Distribution, PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

from pretrain.running.atomic_files import content_hash, write_whole
from pretrain.running.errors import SuiteError
from pretrain.running.source import commit, git

PACKAGES = (
    "torch",
    "torchvision",
    "numpy",
    "pillow",
    "scikit-learn",
    "pycocotools",
    "onedl-mmsegmentation",
)
UNTRAINED = "random initialisation"
"""Method of backbones with random weights of the suite."""


class RecordError(SuiteError, ValueError):
    """A result file is truncated, edited or not a record."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One finished cell, exactly as the file stores it."""

    backbone: dict[str, Any]
    """name, arch, stem, sha256, file_sha256, source, made_by, num_parameters."""
    task: str
    """Task id, as in the paper tables."""
    protocol: dict[str, Any]
    """name, hash, paper_hash, fields."""
    schedule: str
    """paper, short, smoke, or a fraction of the paper's length."""
    seed: int
    engine: str
    metrics: dict[str, float]
    """Percent, as in the paper tables; only a mean cosine may be negative."""
    details: dict[str, Any]
    """Further results: selected learning rates and costs, per-class values."""
    data: dict[str, Any]
    """Fields per dataset: fingerprint, small, counts, tolerated.

    See `transfer.datasets.check.Report`.
    """
    departures: list[str]
    """Deviations from the paper's protocol, one sentence each."""
    wall_s: float
    """Seconds of the evaluation, with its share of work that several evaluations did together.

    After an interruption, only those since then."""
    peak_memory_gb: float
    """Peak memory of the GPU, or else of the process, with that of shared work."""
    request: dict[str, Any]
    """`transfer.cells.request.Request` without folders and with resolved options.

    It also has the input format of the backbone. Older records have command-line arguments
    instead.
    """
    primary_metric: str
    """Metric that represents the task if only one number is shown."""
    heading: str
    """Task group in the overview."""
    speed: dict[str, float] = field(default_factory=dict)
    """Throughput of the frozen network in images/s, by image size in px; older records only."""
    declared: str = ""
    """Recipe that the user declared, if the file does not record one."""
    commit: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, str] = field(default_factory=dict)
    finished: str = ""
    format: str = "ssl-record/1"


COPIED = "copied_test_images_percent"
"""Detail: percentage of test images that are copies of training images."""
CONTENT_HASH = "content_hash"
"""Key of the hash in a record file."""
NESTED = {
    "backbone": ("name", "arch", "stem", "sha256"),
    "protocol": ("name", "hash", "paper_hash", "fields"),
}
DATA = ("fingerprint", "small", "counts", "tolerated")
"""Fields that readers need, in a record's dictionaries and in each dataset."""
SIGNED_METRICS = ("mean_cosine",)
RECORDS, SNAPSHOTS = "records", "snapshots"
"""Folder of records in the results folder, and its folder for snapshots."""


def record_path(
    records: Path, backbone: str, task: str, protocol: str, schedule: str, seed: int
) -> Path:
    """Return the path of a cell's record in the records folder."""
    stem = f"{task}.{protocol.replace('/', '-')}.{schedule}.seed{seed}"
    return records / backbone / f"{stem}.json"


def state_path(record: Path) -> Path:
    """Return the path of the cell's state file."""
    return record.with_name(record.name.removesuffix(".json") + STATE)


STATE, STATE_FORMAT = ".state.json", "ssl-cell/1"


def conditions(record: Record) -> dict[str, Any]:
    """Return the conditions that distinguish records of one cell.

    These are engine, precision, number of processes, type of shared norm layers, type of data, bad
    images allowed, and deviations. They appear in notes under a table.

    Data do not count: a record of other data is outdated, and the new one replaces it. Weights do
    not count either: if a name has records of other weights, the evaluation is refused.
    """
    num_processes = int(record.details.get("num_processes", 1))
    return {
        "engine": record.engine,
        "features_in": features_in(record),
        "num_processes": num_processes,
        "shared_norm": str(record.details.get("norm", "")) if num_processes > 1 else "",
        "data": {
            key: [dataset["small"], dataset["tolerated"]] for key, dataset in record.data.items()
        },
        "departures": record.departures,
    }


def features_in(record: Record) -> str:
    """Return the precision of a record's frozen features."""
    return str(record.details.get("features_in", "float32"))  # older records do not store it


def cell_path(records: Path, record: Record) -> Path:
    """Return the path of a record's cell in the records folder."""
    protocol = record.protocol["name"]
    name, schedule = record.backbone["name"], record.schedule
    return record_path(records, name, record.task, protocol, schedule, record.seed)


def is_record_file(file: Path, cell: Path) -> bool:
    """Return whether this file may be a record of a cell.

    cell: path of the cell's first record. The names of other records also contain engine, precision
    and a hash. The hash is not compared, since an earlier version may have hashed fewer conditions.
    """
    pattern = rf"{re.escape(cell.stem)}\..+-[0-9a-f]{{8}}\.json"  # a plugin's engine has any name
    has_name = file.name == cell.name or re.fullmatch(pattern, file.name) is not None
    return file.parent == cell.parent and has_name


def record_files(path: Path) -> list[Path]:
    """Return all record files of a cell, its own path first."""
    candidates = path.parent.glob(f"{glob.escape(path.stem)}.*.json")
    other_records = sorted(file for file in candidates if is_record_file(file, path))
    return [*([path] if path.exists() else []), *other_records]


def cell_records(path: Path) -> tuple[dict[Path, Record], list[str]]:
    """Return a cell's records by file, and an error per unusable file.

    Such a file is truncated, edited, or a record of another cell that was renamed or copied.
    """
    records, errors = {}, []
    for file in record_files(path):
        try:
            record = read_record(file)
            expected = cell_path(Path(), record).parts  # a task's name may have a slash
            if path.parts[-len(expected) :] != expected:
                raise RecordError(f"{file}: a record of another cell, renamed or copied by hand")
            records[file] = record
        except RecordError as error:
            errors.append(str(error))
        except FileNotFoundError:  # replaced in the meantime
            continue
    return records, errors


def file_for_record(path: Path, record: Record) -> Path:
    """Return the file for a record.

    A record of other conditions or weights gets another file. path: the path of the record's cell.
    """
    records, _ = cell_records(path)
    identity = [conditions(record), record.backbone["sha256"]]
    for file, stored in records.items():
        if [conditions(stored), stored.backbone["sha256"]] == identity:
            return file
    if path not in records:
        return path
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]
    precision = [features_in(record)] if "features_in" in record.details else []
    return path.with_name(f"{path.stem}.{'-'.join([record.engine, *precision, digest])}.json")


def hashed_fields(protocol: object) -> list[Field[Any]]:
    """Return the hashed fields of a protocol."""
    return [spec for spec in fields(protocol) if spec.metadata.get("hashed", True)]  # type: ignore[arg-type]


def stored_fields(protocol: object) -> dict[str, Any]:
    """Return the stored fields of a protocol, nested ones as dictionaries."""
    specs = [spec for spec in fields(protocol) if spec.metadata.get("stored", True)]  # type: ignore[arg-type]
    content = asdict(protocol)  # type: ignore[call-overload]
    return {spec.name: content[spec.name] for spec in specs}


def protocol_hash(task: str, protocol: object) -> str:
    """Return a hash of task id and protocol, twelve hex digits.

    A field marked as added counts only if it differs from its default, so that older records keep
    their hash.
    """
    values = {spec.name: getattr(protocol, spec.name) for spec in hashed_fields(protocol)}
    return hash_of_fields(task, type(protocol), values)


def hash_of_fields(task: str, kind: type, values: Mapping[str, Any]) -> str:
    """Return `protocol_hash` from a record's fields.

    kind: class of the protocol. KeyError if a field is missing that was not added later.
    """
    hashed_values = {
        spec.name: values[spec.name]
        for spec in hashed_fields(kind)
        if not spec.metadata.get("added", False)
        or _plain_json(values.get(spec.name, spec.default)) != _plain_json(spec.default)
    }
    text = json.dumps([task, kind.__name__, hashed_values], sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _plain_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    """Return a protocol's value in a form that JSON can store."""
    return asdict(value) if is_dataclass(value) else str(value)  # type: ignore[arg-type]


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the content of a JSON file, or None if unusable."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def write_json(path: Path, content: dict[str, Any], option: str = "") -> None:
    """Write a JSON file atomically; raises WriteError if that fails.

    option: the command-line option that selects another folder.
    """
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    write_whole(path, text.encode(), option)


def write_json_record(path: Path, record: Record) -> None:
    """Write a record file atomically.

    Raises WriteError if that fails, ArithmeticError for a metric that is not a valid percentage.
    """
    if impossible := impossible_metrics(record.metrics):
        raise ArithmeticError(f"{impossible}, so no record is written")
    content = asdict(record)
    write_json(path, content | {CONTENT_HASH: hash_of_record(content)}, "--results")


def impossible_metrics(metrics: dict[str, float]) -> str:
    """Return a text on invalid metrics; empty if all are valid.

    A metric is invalid if it is not a number or out of range.
    """
    wrong = [
        f"{name} is {value}, expected {minimum} to 100 %"
        for name, value in metrics.items()
        for minimum in [-100 if name in SIGNED_METRICS else 0]
        if not minimum - 1e-6 <= value <= 100 + 1e-6  # rounding errors of means
    ]
    return "; ".join(wrong)


def hash_of_record(content: dict[str, Any]) -> str:
    """Return the hash of a record file's content without the hash itself.

    It depends neither on the order of keys nor on whether a number is written as 50 or 50.0.
    """
    hashed = {key: value for key, value in content.items() if key != CONTENT_HASH}
    return content_hash(json.loads(json.dumps(hashed, sort_keys=True), parse_int=float), 64)


def record_of(content: dict[str, Any]) -> Record:
    """Return the record in a file's content.

    RecordError, KeyError or TypeError if the content is not a valid record.
    """
    if content["format"] != Record.format:
        raise RecordError(f"format {content['format']!r}, expected {Record.format!r}")
    if CONTENT_HASH not in content:
        raise RecordError(f"no {CONTENT_HASH}: an earlier version wrote it")
    if content[CONTENT_HASH] != hash_of_record(content):
        raise RecordError(f"edited after it was written: its {CONTENT_HASH} does not match")
    if impossible := impossible_metrics(content["metrics"]):
        raise RecordError(impossible)
    sections = [(label, content[label], names) for label, names in NESTED.items()]
    sections += [(f"data of {key}", values, DATA) for key, values in content["data"].items()]
    for label, section, names in sections:
        if missing := [name for name in names if name not in section]:
            raise RecordError(f"no {', '.join(missing)} in its {label}")
    return Record(**{key: value for key, value in content.items() if key != CONTENT_HASH})


def store_record(path: Path, record: Record) -> Path:
    """Write the record of the cell at `path`; return the file.

    Records of other conditions or weights are not replaced.
    """
    file = file_for_record(path, record)
    write_json_record(file, record)
    return file


def read_record(path: Path) -> Record:
    """Return the record in a file; raises RecordError if unusable.

    A file is unusable if it is truncated, edited or not a record.
    """
    try:
        return record_of(json.loads(path.read_text()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(
            f"{path}: not a usable record ({error}). To replace it, evaluate again"
        ) from error


def run_environment() -> dict[str, Any]:
    """Return commit, versions, hardware and time for a record."""
    import torch

    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):  # an optional dependency
            versions[name] = version(name)
    cuda = torch.cuda.is_available()
    return {
        "commit": commit(),
        "versions": versions | detectron2_version(),
        "hardware": {
            "machine": platform.machine(),
            "threads": str(torch.get_num_threads()),
            "accelerator": torch.cuda.get_device_name() if cuda else "none",
        },
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def detectron2_version() -> dict[str, str]:
    """Return detectron2's version and commit, if known; empty if not installed.

    The version alone is not enough: 0.6 is from 2021, and installations follow the main branch.
    """
    try:
        package = Distribution.from_name("detectron2")
    except PackageNotFoundError:
        return {}
    versions = {"detectron2": package.version}
    # a record must be written even if this file is damaged
    with suppress(OSError, ValueError, LookupError, TypeError, subprocess.CalledProcessError):
        # pip stores the origin of the installation: a commit, or a folder such as a checkout
        origin = json.loads(package.read_text("direct_url.json") or "")
        if "vcs_info" in origin:
            versions["detectron2_commit"] = str(origin["vcs_info"]["commit_id"])
        else:
            folder = Path(url2pathname(urlparse(str(origin["url"])).path))
            versions["detectron2_commit"] = git(folder, "rev-parse", "HEAD")
    return versions
