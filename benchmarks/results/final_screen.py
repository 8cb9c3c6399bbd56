"""Summary at the end of a run: table of numbers, failures."""

from collections.abc import Container, Mapping, Sequence
from itertools import product
from types import MappingProxyType

from rich.cells import cell_len, set_cell_size

from benchmarks.results.differences import SIGNS, Difference, Word, score_of
from benchmarks.results.numbers import numbers_of
from benchmarks.results.published import best_published
from benchmarks.results.records import CellId, Run, grouped
from benchmarks.results.verdicts import pairs_of

MAX_LINES = 46
"""Maximum number of lines.

All output after the last evaluation, with paths of tables, figures and report, then fits into 60
lines.
"""
MAX_FAILURES = 8
"""Maximum number of shown failures, with two lines each."""
VERDICTS: tuple[Word, ...] = ("reproduced", "inconclusive", "above", "below")
HEADER = ("task", "checkpoint", "metric", "ours", "published", "verdict")


def final_screen(
    runs: Sequence[Run],
    cells: Sequence[CellId],
    unreadable: Mapping[str, str] = MappingProxyType({}),
    width: int = 80,
) -> str:
    """Return the cells' numbers as a text table, and their failures.

    runs: failures, and at most one record per cell, under the conditions of this run.

    Each row is a task and a checkpoint: its number (mean over seeds), the best published number,
    and the verdict if a paper has the checkpoint, too. Verdicts require the paper's protocol,
    length and data; a note gives the reason for a missing verdict.

    unreadable: error messages of unreadable checkpoints, by name. width: columns of the terminal;
    reasons are truncated after two lines.
    """
    requested = set(cells)
    succeeded = [run for run in runs if run.cell in requested and not run.failure]
    missing = requested - {run.cell for run in succeeded}
    failed = [run for run in runs if run.cell in missing and run.failure]
    rows = _rows(cells, succeeded, failed)
    table = aligned([HEADER, *rows], (0, 1, 2, 5)) if rows else ["no results in this run"]
    reasons = [f"failed  {name}  {' '.join(reason.split())}" for name, reason in unreadable.items()]
    reasons += [f"failed  {run.backbone}  {run.task}  {run.failure}" for run in failed]
    reasons = [shortened(reason, 2 * width) for reason in reasons]
    notes = [*_notes(succeeded), *first_lines(reasons, MAX_FAILURES, "more failures in tables/")]
    num_lines = MAX_LINES - 1 - 2 * len(notes)
    return "\n".join([*first_lines(table, num_lines, "more in tables/"), *notes])


def shortened(text: str, length: int) -> str:
    """Return the text, cut to a length in columns."""
    return text if cell_len(text) <= length else f"{set_cell_size(text, length - 1)}…"


def _rows(
    cells: Sequence[CellId], succeeded: Sequence[Run], failed: Sequence[Run]
) -> list[Sequence[str]]:
    """Return a row per task and checkpoint with results or failures."""
    columns = list(dict.fromkeys((cell.task, cell.protocol) for cell in cells))
    backbones = list(dict.fromkeys(cell.backbone for cell in cells))
    worst = {name: _worst([run for run in succeeded if run.backbone == name]) for name in backbones}
    results = grouped(((run.backbone, run.task, run.protocol), run) for run in succeeded)
    failed_keys = {(run.backbone, run.task, run.protocol) for run in failed}
    rows: list[Sequence[str]] = []
    for (task, protocol), name in product(columns, backbones):
        task_runs = results.get((name, task, protocol), [])
        if not task_runs and (name, task, protocol) not in failed_keys:
            continue
        metric, reading = (
            task_runs[0].primary_metric if task_runs else "-",
            protocol.partition("/")[0],
        )
        printed = best_published(task, reading, metric)
        verdict = "-"
        if worst_difference := worst[name].get((task, reading, metric)):
            verdict_word = worst_difference.verdict()
            verdict = f"{SIGNS[verdict_word]} {verdict_word} {worst_difference.interval_text()}"
        has_variants = [task for task, _ in columns].count(task) > 1
        label = f"{task} ({protocol})" if has_variants else task
        best = f"{printed[0]:.1f}" if printed else "-"
        rows.append(
            [label, name, metric, _number(task_runs) if task_runs else "failed", best, verdict]
        )
    return rows


def _number(runs: Sequence[Run]) -> str:
    """Return the mean over seeds, or one number per set of conditions."""
    by_conditions = grouped(
        ((run.protocol_hash, run.conditions, run.fingerprint), run.metrics[run.primary_metric])
        for run in runs
        if run.primary_metric in run.metrics
    )
    return " / ".join(score_of(values).text(1) for values in by_conditions.values()) or "-"


def _worst(runs: Sequence[Run]) -> dict[tuple[str, str, str], Difference]:
    """Return the difference with the worst verdict of a checkpoint.

    Papers may print several numbers of it. Keys are task, protocol without version, and metric.
    """
    worst: dict[tuple[str, str, str], Difference] = {}
    for pair in pairs_of(numbers_of(runs)):
        if not pair.no_verdict:
            printed = pair.printed
            key = printed.task, printed.protocol, printed.column.metric
            candidates = worst.get(key, pair.difference), pair.difference
            worst[key] = max(candidates, key=lambda diff: VERDICTS.index(diff.verdict()))
    return worst


def _notes(runs: Sequence[Run]) -> list[str]:
    """Return the reasons why the numbers are not comparable with papers."""
    if not runs:
        return []
    reasons = [run.reasons.texts for run in runs]
    common = [
        reason for reason in reasons[0] if all(reason in run_reasons for run_reasons in reasons)
    ]
    if common:
        return [f"not comparable with the papers: {', '.join(common)}"]
    if num_incomparable := sum(bool(run_reasons) for run_reasons in reasons):
        return [f"{num_incomparable} results are not comparable with the papers: see the tables"]
    return []


def aligned(rows: Sequence[Sequence[str]], left_columns: Container[int]) -> list[str]:
    """Return lines with padded columns; `left_columns` are left-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.ljust(width) if i in left_columns else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def first_lines(lines: Sequence[str], max_lines: int, noun: str) -> list[str]:
    """Return the first lines, and a line that counts the remaining ones."""
    num_more = len(lines) - max_lines
    if num_more <= 0:
        return [*lines]
    return [*lines[:max_lines], f"... and {num_more} {noun}"]
