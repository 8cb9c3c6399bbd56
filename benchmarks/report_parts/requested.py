"""Requested evaluations without a result, and commands to run them."""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results.records import RUN_ALL, CellId, Run, grouped
from transfer.cells.state import read_states
from transfer.datasets.catalog import DATASETS
from transfer.tasks import TASKS

NOT_FINISHED = "its run was stopped or is still running; the same command resumes"


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
    is_unsupported: bool
    """The task cannot run with this network."""


def not_run(folder: Path, runs: Iterable[Run]) -> list[Remaining]:
    """Return the requested tasks without result or failure, by reason."""
    ended = {run.cell for run in runs}
    states = [
        state.content for state in read_states(folder) if state.name not in ("done", "failed")
    ]
    requested = [content for content in states if content["request"]["task"] in TASKS]
    groups = grouped(
        ((_why_not(content), bool(content["missing_data"]), content["schedule"]), content)
        for content in requested
        if CellId(*(content[name] for name in CellId._fields)) not in ended
        and not content["request"]["checkpoint"]["snapshot"]
    )
    return [_remaining(group, reason) for (reason, *_), group in groups.items()]


def _why_not(content: Mapping[str, Any]) -> str:
    """Return why a cell cannot run, apart from missing data."""
    return content["reason"] if content["state"] in ("missing data", "unsupported") else ""


def run_command(
    tasks: Iterable[str], backbones: Collection[str], schedule: str, seeds: Iterable[int]
) -> str:
    """Return the command that runs tasks."""
    args = [*RUN_ALL, "--ckpt", "FILE"]
    args += ["--name", *backbones] if len(backbones) == 1 else []
    numbers = ",".join(map(str, seeds))
    args += ["--data", "DATA", "--tasks", ",".join(tasks)]
    args += ["--schedule", schedule] if schedule != "paper" else []
    args += ["--seeds", numbers] if numbers != "0" else []
    return shlex.join(args)


def _remaining(group: Sequence[Mapping[str, Any]], reason: str) -> Remaining:
    backbones = tuple(dict.fromkeys(content["backbone"] for content in group))
    tasks = tuple(dict.fromkeys(content["request"]["task"] for content in group))
    seeds = sorted({content["seed"] for content in group})
    command = run_command(tasks, backbones, group[0]["schedule"], seeds)
    data = tuple(dict.fromkeys(key for content in group for key in content["missing_data"]))
    missing = f"no {', '.join(data)}" if data else NOT_FINISHED
    return Remaining(
        backbones=backbones,
        tasks=tasks,
        reason=reason or missing,
        how_to_get=how_to_get(data),
        command="" if reason else command,
        num_cells=len(group),
        is_unsupported=group[0]["state"] == "unsupported",
    )


def how_to_get(keys: Sequence[str]) -> list[str]:
    """Return the download command, and advice for datasets without a source."""
    valid = [key for key in keys if key in DATASETS]
    sourced = [key for key in valid if DATASETS[key].sources]
    advice = [DATASETS[key].how_to_get for key in valid if not DATASETS[key].sources]
    if sourced:
        args = ["python", "-m", "transfer", "get-data", *sourced, "--data", "DATA"]
        return [shlex.join(args), *advice]
    return advice
