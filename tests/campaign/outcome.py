"""The result of a subject, as one digest per file."""

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pretrain.running.atomic_files import load_stage

RESULT_FIELDS = (
    *("backbone", "task", "protocol", "schedule", "seed", "engine", "metrics", "details"),
    *("data", "departures", "primary_metric", "heading"),
)
"""Record fields that do not depend on time, load or memory."""
VOLATILE_DETAILS = ("training",)
"""Details with times and rates."""
VOLATILE_COLUMNS = ("wall_s", "peak_memory_gb")
"""Columns of results.csv with times and memory."""
CACHE = "runs/cache/"
"""Folder of entries named by a hash of their origin.

A surplus entry does no harm.
"""
EXACT_SUFFIXES = (".md", ".csv")
"""Files that are compared byte by byte: tables and figures."""


def outcome(folder: Path) -> dict[str, str]:
    """Return the digest of each file of the result, by path."""
    digests = {}
    for path in sorted(folder.rglob("*")):
        content = _content(path, path.relative_to(folder))
        if content is not None:
            name = path.relative_to(folder).as_posix()
            digests[name] = hashlib.sha256(content).hexdigest()[:16]
    return digests


def differences(expected: dict[str, str], actual: dict[str, str]) -> str:
    """Return missing, surplus and different files in one line.

    Empty if all files are equal.
    """
    names_by_kind = {
        "missing": sorted(expected.keys() - actual.keys()),
        "surplus": sorted(k for k in actual.keys() - expected.keys() if not k.startswith(CACHE)),
        "different": sorted(k for k in expected.keys() & actual.keys() if expected[k] != actual[k]),
    }
    return "; ".join(
        f"{kind}: {', '.join(names[:3])}" for kind, names in names_by_kind.items() if names
    )


def _content(path: Path, name: Path) -> bytes | None:
    """Return the bytes that must be equal.

    None if the file does not belong to the result.
    """
    if path.is_symlink() or not path.is_file():
        return None
    if path.name == "results.csv":
        rows = csv.DictReader(path.read_text().splitlines())
        stored = [{k: v for k, v in row.items() if k not in VOLATILE_COLUMNS} for row in rows]
        return json.dumps(stored).encode()
    if path.suffix in EXACT_SUFFIXES:
        return path.read_bytes()
    if path.suffix == ".npy":  # behind the array stands which state of the data it is of
        return bytes(np.load(path).tobytes())
    if path.suffix == ".json" and "records" in name.parts:
        return json.dumps(result_of(json.loads(path.read_text())), sort_keys=True).encode()
    if path.name == "metrics.jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return json.dumps([[line["step"], line["loss"]] for line in lines]).encode()
    if path.suffix == ".pt":
        content = load_stage(path)  # which reads files of torch.save, too
        return None if content is None else _of_tensors(_without_versions(content))
    return None


def result_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record without location, time, load and memory."""
    stored = {name: record[name] for name in RESULT_FIELDS if name in record}
    details = record.get("details", {})
    return stored | {"details": {k: v for k, v in details.items() if k not in VOLATILE_DETAILS}}


def _without_versions(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a file without commit and versions."""
    made_by = content.get("made_by", {})
    stored = {name: value for name, value in made_by.items() if name not in ("commit", "versions")}
    return content | {"made_by": stored}


def _of_tensors(value: Any) -> bytes:
    """Return tensors and plain values, however nested, as bytes."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype).encode() + value.contiguous().numpy().tobytes()
    if isinstance(value, dict):
        return b"".join(str(key).encode() + _of_tensors(value[key]) for key in value)
    if isinstance(value, list | tuple):
        return b"".join(map(_of_tensors, value))
    return repr(value).encode()
