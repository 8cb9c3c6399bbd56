"""The result file: one JSON per backbone, task, protocol and seed.

A record is written whole or not at all, and holds everything needed to reproduce its number. Its
file also holds a hash of this content, so that a record that was edited is not used. One cell may
have several records of different `conditions`, in the same folder. The first has the cell's own
path; every other has engine, arithmetic and a hash in its name.
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

PACKAGES = (
    "torch",
    "torchvision",
    "numpy",
    "pillow",
    "scikit-learn",
    "pycocotools",
    "onedl-mmsegmentation",
)


class RecordError(SuiteError, ValueError):
    """Error for a result file that is torn, edited or not one of ours."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One finished cell, exactly as the file stores it."""

    backbone: dict[str, Any]
    """name, arch, stem, sha256, file_sha256, source, made_by, num_parameters."""
    task: str
    """Id of the paper tables."""
    protocol: dict[str, Any]
    """name, hash, paper_hash, fields."""
    schedule: str
    """paper, short, smoke, or the share of the paper's length."""
    seed: int
    engine: str
    metrics: dict[str, float]
    """Percent, under the names of the paper tables; 0 to 100, but a mean cosine from -100."""
    details: dict[str, Any]
    """Further results: chosen learning rates and costs, per-class values."""
    data: dict[str, Any]
    """Fields per data set: fingerprint, small (see `transfer.datasets.check.Report`), counts,
    tolerated."""
    departures: list[str]
    """Deviations from the paper's protocol, a sentence each."""
    wall_s: float
    peak_memory_gb: float
    request: dict[str, Any]
    """`transfer.cells.request.Request` without its folders, with options as they were decided; and
    the input format of the backbone. Older records hold the words of a command line instead."""
    primary_metric: str
    """Metric that represents the task where one number is shown."""
    heading: str
    """Part of the overview that shows the task."""
    speed: dict[str, float] = field(default_factory=dict)
    """Images per second of the frozen network alone on this hardware, by their side in px."""
    declared: str = ""
    """Recipe that the user declared for a backbone whose file does not say how it was made."""
    commit: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, str] = field(default_factory=dict)
    finished: str = ""
    format: str = "ssl-record/1"


COPIED = "copied_test_images_percent"
"""Detail: per data set, the test images with a copy among the training images, in percent."""
CONTENT_HASH = "content_hash"
"""Key of the hash in a record's file."""
NESTED = {
    "backbone": ("name", "arch", "stem", "sha256"),
    "protocol": ("name", "hash", "paper_hash", "fields"),
}
DATA = ("fingerprint", "small", "counts", "tolerated")
"""Entries of a record's parts, and of each of its data sets, that its readers need."""
SIGNED_METRICS = ("mean_cosine",)
RECORDS, SNAPSHOTS = "records", "snapshots"
"""Folder of the records in the results folder, and in it the folder of records of snapshots."""


def record_path(
    records: Path, backbone: str, task: str, protocol: str, schedule: str, seed: int
) -> Path:
    """Return the path of a cell's record below the folder of all records."""
    stem = f"{task}.{protocol.replace('/', '-')}.{schedule}.seed{seed}"
    return records / backbone / f"{stem}.json"


def state_path(record: Path) -> Path:
    """Return the path of the file that says what became of the cell."""
    return record.with_name(record.name.removesuffix(".json") + STATE)


STATE, STATE_FORMAT = ".state.json", "ssl-cell/1"


def conditions(record: Record) -> dict[str, Any]:
    """Return what distinguishes records of one cell, and appears in notes below a table.

    These are engine, arithmetic, number of processes, kind of norm that these share, kind of data,
    tolerated images, departures.
    Data do not count: a record of other data is outdated, and the new one replaces it. Weights do
    not either: a name whose records are of other weights is refused before the evaluation.
    """
    num_processes = int(record.details.get("num_processes", 1))
    return {
        "engine": record.engine,
        "features_in": features_in(record),
        "num_processes": num_processes,
        "shared_norm": str(record.details.get("norm", "")) if num_processes > 1 else "",
        "data": {key: [told["small"], told["tolerated"]] for key, told in record.data.items()},
        "departures": record.departures,
    }


def features_in(record: Record) -> str:
    """Return the arithmetic of a record's frozen features."""
    return str(record.details.get("features_in", "float32"))  # older records do not store it


def cell_path(records: Path, record: Record) -> Path:
    """Return the path of a record's cell below the folder of all records."""
    protocol = record.protocol["name"]
    name, schedule = record.backbone["name"], record.schedule
    return record_path(records, name, record.task, protocol, schedule, record.seed)


def is_record_file(file: Path, cell: Path) -> bool:
    """Return whether the suite writes records of the cell at a path to this file.

    A record of further conditions has engine, arithmetic and a hash in its name. The hash is not
    compared: an earlier version may have hashed fewer conditions.
    """
    further = rf"{re.escape(cell.stem)}\..+-[0-9a-f]{{8}}\.json"  # engines of plugins have any name
    is_named = file.name == cell.name or re.fullmatch(further, file.name) is not None
    return file.parent == cell.parent and is_named


def record_files(path: Path) -> list[Path]:
    """Return the files of all records of a cell: its own path and those with a longer name."""
    beside = path.parent.glob(f"{glob.escape(path.stem)}.*.json")
    others = sorted(file for file in beside if is_record_file(file, path))
    return [*([path] if path.exists() else []), *others]


def cell_records(path: Path) -> tuple[dict[Path, Record], list[str]]:
    """Return the records of a cell by file, and of each file that is not used, why.

    Such a file is torn, edited, or a record of another cell that was renamed or copied.
    """
    records, refused = {}, []
    for file in record_files(path):
        try:
            record = read_record(file)
            expected = cell_path(Path(), record).parts  # a task's name may have a slash
            if path.parts[-len(expected) :] != expected:
                raise RecordError(f"{file}: a record of another cell, renamed or copied by hand")
            records[file] = record
        except RecordError as error:
            refused.append(str(error))
        except FileNotFoundError:  # replaced meanwhile
            continue
    return records, refused


def file_for_record(path: Path, record: Record) -> Path:
    """Return the file for a record; it never holds one of other conditions or weights.

    path: the path of the record's cell.
    """
    known, _ = cell_records(path)
    mine = [conditions(record), record.backbone["sha256"]]
    for file, other in known.items():
        if [conditions(other), other.backbone["sha256"]] == mine:
            return file
    if path not in known:
        return path
    digest = hashlib.sha256(json.dumps(mine, sort_keys=True).encode()).hexdigest()[:8]
    words = [record.engine, *([features_in(record)] if "features_in" in record.details else [])]
    return path.with_name(f"{path.stem}.{'-'.join([*words, digest])}.json")


def hashed_fields(protocol: object) -> list[Field[Any]]:
    """Return the fields that define a protocol: all but those marked as not hashed."""
    return [spec for spec in fields(protocol) if spec.metadata.get("hashed", True)]  # type: ignore[arg-type]


def stored_fields(protocol: object) -> dict[str, Any]:
    """Return the fields of a protocol that its record keeps, nested ones as dictionaries."""
    kept = [spec for spec in fields(protocol) if spec.metadata.get("stored", True)]  # type: ignore[arg-type]
    content = asdict(protocol)  # type: ignore[call-overload]
    return {spec.name: content[spec.name] for spec in kept}


def protocol_hash(task: str, protocol: object) -> str:
    """Return twelve hex digits that hash the task id and every hashed field of a protocol.

    A field marked as added counts only if it differs from its default, so that older records keep
    their hash.
    """
    values = {spec.name: getattr(protocol, spec.name) for spec in hashed_fields(protocol)}
    return hash_of_fields(task, type(protocol), values)


def hash_of_fields(task: str, kind: type, values: Mapping[str, Any]) -> str:
    """Return `protocol_hash` of a protocol of class `kind` from its fields, as a record has them.

    KeyError if a field is missing that was not added later.
    """
    numbers = {
        spec.name: values[spec.name]
        for spec in hashed_fields(kind)
        if not spec.metadata.get("added", False)
        or _plain_json(values.get(spec.name, spec.default)) != _plain_json(spec.default)
    }
    text = json.dumps([task, kind.__name__, numbers], sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _plain_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    """Return a part of a protocol as a value that json can store."""
    return asdict(value) if is_dataclass(value) else str(value)  # type: ignore[arg-type]


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the content of a JSON file, its lists as tuples; None if it is absent or torn."""
    try:
        content = json.loads(path.read_text(), object_hook=_with_tuples)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _with_tuples(content: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(v) if isinstance(v, list) else v for key, v in content.items()}


def write_json(path: Path, content: dict[str, Any], option: str = "") -> None:
    """Write a file whole or not at all; WriteError if that fails.

    option: the command-line option that selects another folder.
    """
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    write_whole(path, text.encode(), option)


def write_json_record(path: Path, record: Record) -> None:
    """Write a record file whole or not at all.

    WriteError if that fails, ArithmeticError for a metric that cannot be.
    """
    if impossible := impossible_metrics(record.metrics):
        raise ArithmeticError(f"{impossible}, so no record is written")
    content = asdict(record)
    write_json(path, content | {CONTENT_HASH: hash_of_record(content)}, "--results")


def impossible_metrics(metrics: dict[str, float]) -> str:
    """Return which metrics are no number or out of range, in words; empty if none is."""
    wrong = [
        f"{name} is {value}, expected {least} to 100 %"
        for name, value in metrics.items()
        for least in [-100 if name in SIGNED_METRICS else 0]
        if not least - 1e-6 <= value <= 100 + 1e-6  # means of percentages round
    ]
    return "; ".join(wrong)


def hash_of_record(content: dict[str, Any]) -> str:
    """Return the hash of a record file's content without the hash itself.

    Neither the order of keys counts, nor whether a number is written as 50 or as 50.0.
    """
    rest = {key: value for key, value in content.items() if key != CONTENT_HASH}
    return content_hash(json.loads(json.dumps(rest, sort_keys=True), parse_int=float), 64)


def record_of(content: dict[str, Any]) -> Record:
    """Return the record in a file's content.

    RecordError, KeyError or TypeError if the content is not as the suite wrote it.
    """
    if content["format"] != Record.format:
        raise RecordError(f"format {content['format']!r}, expected {Record.format!r}")
    if CONTENT_HASH not in content:
        raise RecordError(f"no {CONTENT_HASH}, as an earlier version wrote it")
    if content[CONTENT_HASH] != hash_of_record(content):
        raise RecordError(f"edited after it was written, as its {CONTENT_HASH} tells")
    if impossible := impossible_metrics(content["metrics"]):
        raise RecordError(impossible)
    parts = [(part, content[part], names) for part, names in NESTED.items()]
    parts += [(f"data of {key}", told, DATA) for key, told in content["data"].items()]
    for part, own, names in parts:
        if missing := [name for name in names if name not in own]:
            raise RecordError(f"no {', '.join(missing)} in its {part}")
    return Record(**{key: value for key, value in content.items() if key != CONTENT_HASH})


def store_record(path: Path, record: Record) -> Path:
    """Write the record of the cell at `path`; return the file.

    It replaces no record of other conditions or weights.
    """
    file = file_for_record(path, record)
    write_json_record(file, record)
    return file


def read_record(path: Path) -> Record:
    """Return the record in a file; RecordError if the file is torn, edited or foreign."""
    try:
        return record_of(json.loads(path.read_text()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(
            f"{path}: not a record that can be used ({error}); to replace it, evaluate again"
        ) from error


def run_environment() -> dict[str, Any]:
    """Return commit, versions, hardware and time, which every record stores."""
    return {
        "commit": commit(),
        "versions": installed_versions()
        | detectron2_version()
        | {"python": platform.python_version()},
        "hardware": hardware(),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def installed_versions() -> dict[str, str]:
    """Return the versions of those PACKAGES that are installed."""
    versions = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):  # an extra of the installation
            versions[name] = version(name)
    return versions


def detectron2_version() -> dict[str, str]:
    """Return detectron2's version and commit as far as they are known; empty if it is absent.

    The version alone says little: 0.6 is of 2021, and installations follow the main branch.
    """
    try:
        package = Distribution.from_name("detectron2")
    except PackageNotFoundError:
        return {}
    known = {"detectron2": package.version}
    # a record must be written even if this file is damaged
    with suppress(OSError, ValueError, LookupError, TypeError, subprocess.CalledProcessError):
        # pip notes there where it installed from: a commit, or a folder such as a checkout
        origin = json.loads(package.read_text("direct_url.json") or "")
        if "vcs_info" in origin:
            known["detectron2_commit"] = str(origin["vcs_info"]["commit_id"])
        else:
            folder = Path(url2pathname(urlparse(str(origin["url"])).path))
            known["detectron2_commit"] = _git(folder, "rev-parse", "HEAD")
    return known


def hardware() -> dict[str, str]:
    """Return processor, threads and accelerator."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "machine": platform.machine(),
        "threads": str(torch.get_num_threads()),
        "accelerator": device,
    }


def commit() -> str:
    """Return the commit of this checkout, with "+" if Python files differ; empty without one."""
    here = Path(__file__).parent
    try:
        _git(here, "ls-files", "--error-unmatch", "record.py")  # else another project's folder
        head = _git(here, "rev-parse", "--short=10", "HEAD")
        changed = _git(here, "status", "--porcelain", "--", ":/*.py")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if changed else "")


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()
