"""Evaluated checkpoints, failures, missing results and total hours."""

from collections.abc import Iterable, Sequence

from benchmarks.report_parts.document import Fold, Part, Terms, sheet
from benchmarks.report_parts.requested import Remaining
from benchmarks.results.explanation import checkpoint_lines
from benchmarks.results.numbers import Number
from benchmarks.results.records import RUN_ALL, Results, Run, plural
from benchmarks.results.tables import declaration_notes, description, row_label
from benchmarks.results.verdicts import pretraining_data


def checkpoints(numbers: Iterable[Number], runs: Sequence[Run]) -> list[Fold]:
    """Return every evaluated checkpoint by name, random networks last."""
    firsts = {n.run.identity: n._replace(conditions="") for n in reversed([*numbers])}
    rows = sorted(firsts.values(), key=lambda row: (row.run.is_random, row.run.identity))
    folds = []
    for row in rows:
        own_runs = [run for run in runs if run.identity == row.run.identity]
        records = [run.record for run in own_runs if not run.failure]
        num_failed = len(own_runs) - len(records)
        count = plural(len(records), "result") + (f", {num_failed} failed" if num_failed else "")
        terms = [Terms(checkpoint_lines(records[0]))] if records else []
        data = pretraining_data(row.run, [other_row.run for other_row in rows])
        label, text = row_label(row, rows), description(row.run._replace(data=data))
        folds.append(Fold(label, text, count, terms, kind="checkpoint"))
    return folds


def evaluated_parts(
    results: Results, numbers: Iterable[Number], remaining: Iterable[Remaining]
) -> list[Part]:
    """Return checkpoints, hours, failures, unused files, and requested cells without a result."""
    elements: list[Part] = [*checkpoints(numbers, results.runs)]
    if not elements:
        command = f"`{' '.join(RUN_ALL)} --ckpt FILE --data DATA`"
        elements.append(f"No records yet. To evaluate a checkpoint, run {command}.")
    elements += declaration_notes(results.runs)
    if results.succeeded:
        hours = sum(run.record.wall_s for run in results.succeeded) / 3600
        elements.append(f"{plural(len(results.succeeded), 'result')} in {hours:.2f} hours.")
    failed = [run for run in results.runs if run.failure]
    if failed:
        header = ["checkpoint", "task", "schedule", "seed", "reason"]
        rows = [[r.backbone, r.task, r.schedule, str(r.seed), r.failure] for r in failed]
        elements.append(sheet("Failed evaluations", header, rows, num_left=5))
    if results.unused:
        elements += [
            "### Files that are not used",
            "\n".join(f"- {file}" for file in results.unused),
        ]
    rows = [
        [
            ", ".join(group.backbones),
            ", ".join(group.tasks),
            group.reason,
            "; ".join(filter(None, [*group.how_to_get, group.command])),
        ]
        for group in remaining
    ]
    if rows:
        header = ["checkpoint", "tasks", "reason", "next step"]
        elements.append(sheet("Requested, without a result", header, rows, num_left=4))
    return elements
