"""Summary at the end of a run: table of numbers, failures."""

from collections.abc import Mapping, Sequence
from itertools import product

from benchmarks.results.differences import SIGNS
from benchmarks.results.numbers import common_notes, numbers_of
from benchmarks.results.published import best_published
from benchmarks.results.records import CellId, Run
from benchmarks.results.verdicts import pairs_of
from benchmarks.words import grouped
from pretrain.running.console import aligned
from transfer.tasks import key_of

MAX_LINES = 46
"""Maximum number of lines.

All output after the last evaluation, with paths of tables, figures and report, then fits into 60
lines.
"""
MAX_FAILURES = 8
"""Maximum number of shown failures, with two lines each."""
VERDICTS = ("reproduced", "inconclusive", "above", "below")
HEADER = ("task", "checkpoint", "metric", "ours", "published", "verdict")


def final_screen(
    runs: Sequence[Run],
    cells: Sequence[CellId],
    unreadable: Mapping[str, str],
    width: int,
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
    rows = _rows(cells, [*succeeded, *failed])
    table = aligned([HEADER, *rows], right=(3, 4)) if rows else ["no results in this run"]
    reasons = [f"failed  {name}  {' '.join(reason.split())}" for name, reason in unreadable.items()]
    for run in failed:
        key = key_of(run.task, run.protocol)
        reasons.append(f"failed  {run.backbone.name}  {key}  {run.failure}")
    reasons = [
        reason if len(reason) <= 2 * width else f"{reason[: 2 * width - 1]}…" for reason in reasons
    ]
    notes = [*_notes(succeeded), *first_lines(reasons, MAX_FAILURES, "more failures in tables/")]
    num_lines = MAX_LINES - 1 - 2 * len(notes)
    return "\n".join([*first_lines(table, num_lines, "more in tables/"), *notes])


def _rows(cells: Sequence[CellId], runs: Sequence[Run]) -> list[Sequence[str]]:
    """Return a row per task and checkpoint with results or failures.

    Papers may print several numbers of a result; the row has the worst verdict.
    """
    columns = list(dict.fromkeys((cell.task, cell.protocol) for cell in cells))
    keys = [key_of(*column) for column in columns]
    backbones = list(dict.fromkeys(cell.backbone for cell in cells))
    numbers = [n for n in numbers_of(runs) if n.metric == n.primary_metric or n.text]
    by_cell = {(n.backbone.name, *n.column): n for n in reversed(numbers)}
    pairs = [pair for pair in pairs_of(numbers) if not pair.no_verdict]
    verdicts = grouped(((pair.ours.row, pair.ours.column), pair) for pair in pairs)
    rows: list[Sequence[str]] = []
    for (task, protocol), name in product(columns, backbones):
        column = task, protocol.partition("/")[0]
        if number := by_cell.get((name, *column)):
            metric, key = number.primary_metric, key_of(task, protocol)
            printed = best_published(*column, metric)
            worst = max(
                verdicts.get((number.row, number.column), ()),
                key=lambda pair: VERDICTS.index(pair.verdict),
                default=None,
            )
            rows.append(
                [
                    f"{key} ({protocol})" if keys.count(key) > 1 else key,
                    name,
                    metric,
                    number.score.text(1) if number.score else number.text,
                    f"{printed[0]:.1f}" if printed else "-",
                    f"{SIGNS[worst.verdict]} {worst.verdict_text}" if worst else "-",
                ]
            )
    return rows


def _notes(runs: Sequence[Run]) -> list[str]:
    """Return the reasons why the numbers are not comparable with papers."""
    if common := common_notes(run.reasons.texts for run in runs):
        return [f"not comparable with the papers: {', '.join(common)}"]
    if num_incomparable := sum(bool(run.reasons.texts) for run in runs):
        return [f"{num_incomparable} results are not comparable with the papers: see the tables"]
    return []


def first_lines(lines: Sequence[str], max_lines: int, noun: str) -> list[str]:
    """Return the first lines, and a line that counts the remaining ones."""
    num_more = len(lines) - max_lines
    if num_more <= 0:
        return [*lines]
    return [*lines[:max_lines], f"... and {num_more} {noun}"]
