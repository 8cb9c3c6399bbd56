"""Requested cells, stored beside the report, to list those without a result."""

import json
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.results.records import REPORT, CellId, Run, grouped
from pretrain.running.atomic_files import write_whole
from transfer.datasets.catalog import DATASETS
from transfer.tasks import TASKS, reading_of

FILE = "requested.json"
FORMAT = "ssl-requested/1"
NOT_FINISHED = "its run was stopped or is still running; the same command resumes"


@dataclass(frozen=True, kw_only=True)
class Requested:
    """A cell that a run was requested to compute."""

    backbone: str
    key: str
    """Key in TASKS."""
    protocol: str
    """Name and version."""
    schedule: str
    seed: int
    why: str = ""
    """Reason why the plan left it out; empty if it was to run, or if only data are missing."""
    data: tuple[str, ...] = ()
    """Keys of missing datasets."""

    @property
    def cell(self) -> CellId:
        """Return what identifies its record."""
        task = reading_of(self.key)[0]
        return CellId(self.backbone, task, self.protocol, self.schedule, self.seed)


def remember_requested(results: Path, requested: Sequence[Requested]) -> None:
    """Store the cells of a run; they replace those of earlier runs of the same checkpoints."""
    again = {one.backbone for one in requested}
    kept = [one for one in stored_requests(results) if one.backbone not in again]
    cells = [vars(one) for one in (*kept, *requested)]
    content = json.dumps({"format": FORMAT, "cells": cells}, indent=1) + "\n"
    write_whole(results / REPORT / FILE, content.encode(), "--results")


class Remaining(NamedTuple):
    """Requested tasks without a result, for one reason."""

    backbones: tuple[str, ...]
    tasks: tuple[str, ...]
    """Keys in TASKS."""
    reason: str
    how_to_get: list[str]
    """How to get the missing data."""
    command: str
    """Command that runs the tasks; empty if they cannot run."""
    num_cells: int


def not_run(folder: Path, runs: Iterable[Run]) -> list[Remaining]:
    """Return the requested tasks that have neither a result nor a failure, by reason."""
    ended = {run.cell for run in runs}
    remaining = [one for one in stored_requests(folder) if one.cell not in ended]
    groups = grouped(((one.why, bool(one.data), one.schedule), one) for one in remaining)
    return [_remaining(group) for group in groups.values()]


def run_command(
    tasks: Iterable[str], backbones: Collection[str], schedule: str, seeds: Iterable[int]
) -> str:
    """Return the command that runs tasks."""
    words = ["python", "benchmarks/run_all.py", "--ckpt", "FILE"]
    words += ["--name", *backbones] if len(backbones) == 1 else []
    numbers = ",".join(map(str, seeds))
    words += ["--data", "DATA", "--tasks", ",".join(tasks)]
    words += ["--schedule", schedule] if schedule != "paper" else []
    words += ["--seeds", numbers] if numbers != "0" else []
    return shlex.join(words)


def _remaining(group: Sequence[Requested]) -> Remaining:
    first = group[0]
    backbones = tuple(dict.fromkeys(one.backbone for one in group))
    tasks = tuple(dict.fromkeys(one.key for one in group))
    command = run_command(tasks, backbones, first.schedule, sorted({one.seed for one in group}))
    data = tuple(dict.fromkeys(key for one in group for key in one.data))
    missing = f"no {', '.join(data)}" if data else NOT_FINISHED
    return Remaining(
        backbones=backbones,
        tasks=tasks,
        reason=first.why or missing,
        how_to_get=how_to_get(data),
        command="" if first.why else command,
        num_cells=len(group),
    )


def stored_requests(results: Path) -> list[Requested]:
    """Return the remembered cells; none if the file is absent or foreign."""
    try:
        content = json.loads((results / REPORT / FILE).read_text(encoding="utf-8"))
        cells = content["cells"] if content["format"] == FORMAT else []
        listed = [Requested(**cell | {"data": tuple(cell["data"])}) for cell in cells]
        return [one for one in listed if one.key in TASKS]
    except (OSError, ValueError, TypeError, KeyError):
        return []


def how_to_get(keys: Sequence[str]) -> list[str]:
    """Return the command that gets the data sets, and advice on those without a source."""
    known = [key for key in keys if key in DATASETS]
    sourced = [key for key in known if DATASETS[key].sources]
    advice = [DATASETS[key].how_to_get for key in known if not DATASETS[key].sources]
    if sourced:
        words = ["python", "-m", "transfer", "get-data", *sourced, "--data", "DATA"]
        return [shlex.join(words), *advice]
    return advice
