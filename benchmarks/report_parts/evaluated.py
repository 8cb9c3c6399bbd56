"""Evaluated checkpoints, failures, requested evaluations without a result, and total hours."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.report_parts.document import Fold, Part, sheet
from benchmarks.results.explanation import checkpoint_lines
from benchmarks.results.numbers import Number, one_per_backbone
from benchmarks.results.records import RUN_ALL, TRANSFER, CellId, Results, Run, grouped, plural
from benchmarks.results.tables import declaration_notes, description, plain, row_label
from benchmarks.results.verdicts import pretraining_data
from transfer.cells.state import read_states
from transfer.tasks import TASKS

NOT_FINISHED = "its run was stopped or is still running; the same command resumes"


class Remaining(NamedTuple):
    """Requested evaluations without a result, for one reason."""

    backbones: Sequence[str]
    tasks: Sequence[str]
    """Keys in TASKS."""
    reason: str
    num_cells: int
    is_unsupported: bool
    """The task cannot run with this network."""


def without_result(folder: Path, runs: Iterable[Run]) -> list[Remaining]:
    """Return the requested evaluations without result or failure, by reason."""
    ended = {run.cell for run in runs}
    requested = [
        state.content
        for state in read_states(folder)
        if state.name not in ("done", "failed")
        and state.content["request"]["task"] in TASKS
        and not state.content["request"]["checkpoint"]["snapshot"]
        and CellId(*(state.content[name] for name in CellId._fields)) not in ended
    ]
    remaining = []
    for (reason, is_unsupported), group in grouped(
        ((_reason(content), content["state"] == "unsupported"), content) for content in requested
    ).items():
        backbones = dict.fromkeys(content["backbone"] for content in group)
        tasks = dict.fromkeys(content["request"]["task"] for content in group)
        remaining.append(Remaining([*backbones], [*tasks], reason, len(group), is_unsupported))
    return remaining


def _reason(content: Mapping[str, Any]) -> str:
    """Return why a cell has no result, with the command that gets missing data."""
    if content["state"] not in ("missing data", "unsupported"):
        return NOT_FINISHED
    keys = content["missing_data"]
    get_data = shlex.join([*TRANSFER, "get-data", *keys, "--data", "DATA"])
    return str(content["reason"] or f"no {', '.join(keys)}; to get it: {get_data}")


def checkpoints(numbers: Iterable[Number], runs: Sequence[Run]) -> list[Fold]:
    """Return every evaluated checkpoint by name, random networks last."""
    rows = sorted(one_per_backbone(numbers), key=lambda row: row.backbone.is_random)
    folds = []
    for row in rows:
        own_runs = [run for run in runs if run.backbone.identity == row.backbone.identity]
        records = [run.record for run in own_runs if not run.failure]
        num_failed = len(own_runs) - len(records)
        count = plural(len(records), "result") + (f", {num_failed} failed" if num_failed else "")
        facts = checkpoint_lines(records[0]) if records else []
        lines = "\n".join(f"- **{name}**: {plain(text)}" for name, text in facts)
        data = pretraining_data(row.backbone, [other.backbone for other in rows])
        label, text = row_label(row, rows), description(row.backbone._replace(data=data))
        folds.append(Fold(label, text, count, [lines], kind="checkpoint"))
    return folds


def evaluated_parts(
    results: Results, numbers: Iterable[Number], remaining: Iterable[Remaining]
) -> list[Part]:
    """Return checkpoints, hours, failures, unused files, and requested cells without a result."""
    parts: list[Part] = [*checkpoints(numbers, results.runs)]
    if not parts:
        command = f"`{' '.join(RUN_ALL)} --ckpt FILE --data DATA`"
        parts.append(f"No records yet. To evaluate a checkpoint, run {command}.")
    parts += declaration_notes(run.backbone for run in results.runs)
    if results.succeeded:
        hours = sum(run.record.wall_s for run in results.succeeded) / 3600
        parts.append(f"{plural(len(results.succeeded), 'result')} in {hours:.2f} hours.")
    failed = [run for run in results.runs if run.failure]
    if failed:
        header = ["checkpoint", "task", "schedule", "seed", "reason"]
        rows = [[r.backbone.name, r.task, r.schedule, str(r.seed), r.failure] for r in failed]
        parts.append(sheet("Failed evaluations", header, rows, num_left=5))
    if results.unused:
        files = "\n".join(f"- {line}" for line in results.unused)
        parts += ["### Files that are not used", files]
    rows = [[", ".join(r.backbones), ", ".join(r.tasks), r.reason] for r in remaining]
    if rows:
        header = ["checkpoint", "tasks", "reason"]
        parts.append(sheet("Requested, without a result", header, rows, num_left=3))
    return parts
