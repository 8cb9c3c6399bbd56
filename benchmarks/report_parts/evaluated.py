"""Evaluated checkpoints, failures, requested evaluations without a result, and total hours."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report_parts.document import Fold, Part, sheet
from benchmarks.results.explanation import checkpoint_lines
from benchmarks.results.numbers import Number, one_per_backbone
from benchmarks.results.records import CellId, Results, Run
from benchmarks.results.tables import declaration_notes, description, plain, row_label
from benchmarks.results.verdicts import pretraining_data
from benchmarks.words import RUN_ALL, TRANSFER, grouped, plural
from transfer.cells.state import read_states
from transfer.tasks import TASKS

NOT_FINISHED = "its run was stopped or is still running; the same command resumes"


def without_result(folder: Path, runs: Iterable[Run]) -> list[Mapping[str, Any]]:
    """Return the states of the requested evaluations without result or failure."""
    ended = {run.cell for run in runs}
    return [
        state.content
        for state in read_states(folder)
        if state.name not in ("done", "failed")
        and state.content["request"]["task"] in TASKS
        and not state.content["request"]["checkpoint"]["snapshot"]
        and CellId(*(state.content[name] for name in CellId._fields)) not in ended
    ]


def reason_of(content: Mapping[str, Any]) -> str:
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
    results: Results, numbers: Iterable[Number], remaining: Iterable[Mapping[str, Any]]
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
    rows = []
    for reason, cells in grouped((reason_of(content), content) for content in remaining).items():
        names = dict.fromkeys(content["backbone"] for content in cells)
        tasks = dict.fromkeys(content["request"]["task"] for content in cells)
        rows.append([", ".join(names), ", ".join(tasks), reason])
    if rows:
        header = ["checkpoint", "tasks", "reason"]
        parts.append(sheet("Requested, without a result", header, rows, num_left=3))
    return parts
