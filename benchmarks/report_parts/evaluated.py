"""Evaluated checkpoints, failed cells, cells without a result, and the hours of all results."""

from collections.abc import Iterable, Sequence

from benchmarks.report_parts.document import Fold, Part, Terms, sheet
from benchmarks.report_parts.requested import Remaining
from benchmarks.results.explanation import checkpoint_lines
from benchmarks.results.numbers import Number
from benchmarks.results.records import RUN_ALL, Results, Run, plural
from benchmarks.results.tables import declaration_notes, description, row_label
from benchmarks.results.verdicts import pretraining_data


def checkpoints(numbers: Iterable[Number], runs: Sequence[Run]) -> list[Fold]:
    """Return every checkpoint with a result or a failure by name, random networks last."""
    firsts = {n.run.identity: n._replace(conditions="") for n in reversed([*numbers])}
    rows = sorted(firsts.values(), key=lambda row: (row.run.is_random, row.run.identity))
    folds = []
    for row in rows:
        own = [run for run in runs if run.identity == row.run.identity]
        done = [run.record for run in own if not run.failure]
        num_failed = len(own) - len(done)
        count = plural(len(done), "result") + (f", {num_failed} failed" if num_failed else "")
        terms = [Terms(checkpoint_lines(done[0]))] if done else []
        data = pretraining_data(row.run, [one.run for one in rows])
        label, text = row_label(row, rows), description(row.run._replace(data=data))
        folds.append(Fold(label, text, count, terms, kind="checkpoint"))
    return folds


def evaluated_parts(
    results: Results, numbers: Iterable[Number], remaining: Iterable[Remaining]
) -> list[Part]:
    """Return checkpoints, hours, failures, unused files, and requested cells without a result."""
    parts: list[Part] = [*checkpoints(numbers, results.runs)]
    if not parts:
        command = f"`{' '.join(RUN_ALL)} --ckpt FILE --data DATA`"
        parts.append(f"No records here yet. {command} writes them.")
    parts += declaration_notes(results.runs)
    if results.done:
        hours = sum(run.record.wall_s for run in results.done) / 3600
        parts.append(f"{plural(len(results.done), 'result')} in {hours:.2f} hours.")
    failed = [run for run in results.runs if run.failure]
    if failed:
        header = ["checkpoint", "task", "schedule", "seed", "reason"]
        rows = [[r.backbone, r.task, r.schedule, str(r.seed), r.failure] for r in failed]
        parts.append(sheet("What failed", header, rows, left=5))
    if results.unused:
        parts += ["### Files that are not used", "\n".join(f"- {one}" for one in results.unused)]
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
        header = ["checkpoint", "tasks", "why", "what to do"]
        parts.append(sheet("Asked for, without a result", header, rows, left=4))
    return parts
