"""Result files written by hand, and the tables made from them."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results.contents import read_contents
from benchmarks.results.differences import SHARES
from benchmarks.results.published import num_test_images, transfer_tasks
from benchmarks.tables import write_tables
from transfer.outcomes import NUM_RESAMPLES, resampled
from transfer.record import (
    CONTENT_HASH,
    RECORDS,
    SNAPSHOTS,
    Record,
    cell_path,
    conditions,
    hash_of_record,
    record_files,
    record_path,
    state_path,
)
from transfer.tasks import TASKS, reading_of


def put(folder: Path, name: str, content: dict[str, Any]) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if content.get("format") == Record.format:
        content = content | {"content_hash": hash_of_record(content)}
    path.write_text(json.dumps(content))


def _metric_and_heading(task: str) -> dict[str, str]:
    """Primary metric and heading of a task id."""
    of_task = next((item for key, item in TASKS.items() if reading_of(key)[0] == task), None)
    metric, heading = (of_task.primary_metric, of_task.heading) if of_task else ("top1", "Others")
    return {"primary_metric": metric, "heading": heading}


def _tested(task: str, metric: str, score: float) -> dict[str, Any]:
    """Return the number of test images, and a resampled metric.

    A metric that is not a fraction of the images has an error of 0.1.
    """
    counted = {"num_test": num_test_images(task) or 1000}
    if any(fragment in metric for fragment in SHARES):
        return counted
    values = score + np.random.default_rng(0).normal(0, 0.1, NUM_RESAMPLES)
    return counted | resampled({metric: values}, 1000)


def record(results: Path, score: float, **changes: Any) -> None:
    """Write a comparable record of voc07_svm, except for what changes.

    changes: entries of a record, of its backbone, protocol or dataset, the names of backbone and
    protocol, `metric`, and `content` with entries of the whole file.
    """
    metric, content = changes.pop("metric", ""), changes.pop("content", {})
    backbone: dict[str, Any] = {"name": "mine", "arch": "resnet50", "stem": "imagenet"}
    backbone |= {"sha256": "a" * 64, "source": "", "made_by": {}}
    protocol: dict[str, Any] = {
        "name": "co2-2021/1",
        "hash": "paper",
        "paper_hash": "paper",
        "fields": {},
    }
    data: dict[str, Any] = {"fingerprint": "f", "small": "", "tolerated": 0, "counts": {}}
    written: dict[str, Any] = {
        "format": "ssl-record/1",
        "backbone": backbone,
        "task": "voc07_svm",
        "protocol": protocol,
        "schedule": "paper",
        "seed": 0,
        "engine": "batched",
        "data": {"set": data},
        "departures": [],
        "details": {},
        "finished": "2026-01-01T00:00:00Z",
        "wall_s": 1.0,
        "peak_memory_gb": 1.0,
        "request": {},
    }
    for name, value in changes.items():
        if name in ("backbone", "protocol"):
            written[name]["name"] = value
        else:
            next(fields for fields in (backbone, protocol, data, written) if name in fields)[
                name
            ] = value
    output = _metric_and_heading(written["task"])
    metric = metric or output["primary_metric"]
    written["details"] = _tested(written["task"], metric, score) | written["details"]
    created = written | output | {"metrics": {metric: score}} | content
    path = cell_path(_records(results), Record(**created))
    # like the suite: other conditions, or here also other weights, give a separate file
    files = {_identity(json.loads(file.read_text())): file for file in record_files(path)}
    digest = hashlib.sha256(_identity(created).encode()).hexdigest()[:8]
    further = path.with_name(f"{path.stem}.{created['engine']}-{digest}.json")
    file = files.get(_identity(created), further if files else path)
    put(file.parent, file.name, created)


def _records(results: Path) -> Path:
    """The folder of records in a results folder, or the folder itself."""
    return results if results.name in (RECORDS, SNAPSHOTS) else results / RECORDS


def _identity(content: dict[str, Any]) -> str:
    """Weights, protocol and conditions."""
    item = Record(**{key: value for key, value in content.items() if key != CONTENT_HASH})
    of_run = [item.backbone["sha256"], item.protocol["hash"], conditions(item)]
    return json.dumps(of_run, sort_keys=True)


def failure(
    results: Path,
    task: str,
    reason: str,
    schedule: str = "paper",
    seed: int = 0,
    **changes: str,
) -> None:
    protocol = "lorac-2021/1" if task in transfer_tasks() else "co2-2021/1"
    name = changes.get("backbone", "mine")
    file = state_path(record_path(_records(results), name, task, protocol, schedule, seed))
    put(
        file.parent,
        file.name,
        {
            "format": "ssl-cell/1",
            "state": "failed",
            **_metric_and_heading(task),
            "backbone": "mine",
            "sha256": "a" * 64,
            "small": "",
            "task": task,
            "protocol": protocol,
            "schedule": schedule,
            "seed": seed,
            "reason": reason,
        }
        | changes,
    )


def page(results: Path, name: str = "co2_table3.md") -> str:
    paths = {path.name: path for path in write_tables(read_contents(results))}
    return paths[name].read_text()


def blocks(text: str) -> list[dict[str, list[str]]]:
    """The tables of a page: first cell -> other cells."""
    result = []
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        lines = [[c.strip() for c in line.split("|")[1:-1]] for line in table.splitlines()]
        result.append({line[0]: line[1:] for line in lines[2:]})
    return result


def transfer_records(results: Path, tasks: tuple[str, ...] = (), **changes: Any) -> None:
    for number, task in enumerate(tasks or transfer_tasks()):
        record(results, 50.0 + number, task=task, protocol="lorac-2021/1", **changes)
