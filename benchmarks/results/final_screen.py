"""Summary at the end of a run: table of numbers, failures."""

from collections.abc import Container, Mapping, Sequence
from itertools import product
from types import MappingProxyType

from rich.cells import cell_len, set_cell_size

from benchmarks.results.differences import SIGNS, score_of
from benchmarks.results.numbers import common_notes, numbers_of
from benchmarks.results.published import best_published
from benchmarks.results.records import CellId, Run, grouped
from benchmarks.results.verdicts import pairs_of
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
    for run in failed:
        key = key_of(run.task, run.protocol)
        reasons.append(f"failed  {run.backbone.name}  {key}  {run.failure}")
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
    keys = [key_of(*column) for column in columns]
    backbones = list(dict.fromkeys(cell.backbone for cell in cells))
    worst = _worst_verdicts(succeeded)
    results = grouped(
        ((run.backbone.name, run.task, run.protocol), run) for run in (*succeeded, *failed)
    )
    rows: list[Sequence[str]] = []
    for (task, protocol), name in product(columns, backbones):
        task_runs = results.get((name, task, protocol), [])
        if not task_runs:
            continue
        metric = task_runs[0].primary_metric
        values = [run.metrics[metric] for run in task_runs if metric in run.metrics]
        ours = score_of(values).text(1) if values else "failed" if task_runs[0].failure else "-"
        protocol_name = protocol.partition("/")[0]
        printed = best_published(task, protocol_name, metric)
        best = f"{printed[0]:.1f}" if printed else "-"
        key = key_of(task, protocol)
        label = f"{key} ({protocol})" if keys.count(key) > 1 else key
        verdict = worst.get((name, task, protocol_name, metric), "-")
        rows.append([label, name, metric, ours, best, verdict])
    return rows


def _worst_verdicts(runs: Sequence[Run]) -> dict[tuple[str, str, str, str], str]:
    """Return the worst verdict of each result, with its interval.

    Papers may print several numbers of it. Keys are backbone, task, protocol without version, and
    metric.
    """
    pairs = [pair for pair in pairs_of(numbers_of(runs)) if not pair.no_verdict]
    worst: dict[tuple[str, str, str, str], str] = {}
    for pair in sorted(pairs, key=lambda pair: VERDICTS.index(pair.verdict), reverse=True):
        key = pair.ours.backbone.name, *pair.ours.column, pair.ours.metric
        worst.setdefault(key, f"{SIGNS[pair.verdict]} {pair.verdict_text}")
    return worst


def _notes(runs: Sequence[Run]) -> list[str]:
    """Return the reasons why the numbers are not comparable with papers."""
    if common := common_notes(run.reasons.texts for run in runs):
        return [f"not comparable with the papers: {', '.join(common)}"]
    if num_incomparable := sum(bool(run.reasons.texts) for run in runs):
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
