"""The last screen of a run: one compact table of this run's numbers, then its failures."""

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
"""Lines of the screen. Everything that a run prints after its last cell then fits into 60 lines:
paths of tables and figures before it, report and counts after it."""
MAX_FAILURES = 8
"""Failures whose reasons are shown, each on at most two lines."""
VERDICTS: tuple[Word, ...] = ("reproduced", "inconclusive", "above", "below")
HEADER = ("task", "checkpoint", "metric", "ours", "published", "verdict")


def final_screen(
    runs: Sequence[Run],
    cells: Sequence[CellId],
    unreadable: Mapping[str, str] = MappingProxyType({}),
    width: int = 80,
) -> str:
    """Return the numbers of the cells as a text table, and their failures with reasons.

    runs: at most one record of a cell, that of the run's conditions; and failures.

    Each row is a task and a checkpoint: its number (mean over seeds), the best published one, and
    the verdict if a paper has the checkpoint, too. Verdicts need the paper's protocol, length and
    data; a note says what stands against them.

    unreadable: reasons of checkpoints whose files could not be read, by name. width: columns of
    the terminal; reasons are cut after two lines.
    """
    wanted = set(cells)
    done = [run for run in runs if run.cell in wanted and not run.failure]
    lost = wanted - {run.cell for run in done}
    failed = [run for run in runs if run.cell in lost and run.failure]
    rows = _rows(cells, done, failed)
    table = aligned([HEADER, *rows], (0, 1, 2, 5)) if rows else ["no number of this run"]
    reasons = [f"failed  {name}  {' '.join(why.split())}" for name, why in unreadable.items()]
    reasons += [f"failed  {run.backbone}  {run.task}  {run.failure}" for run in failed]
    reasons = [shortened(reason, 2 * width) for reason in reasons]
    below = [*_notes(done), *first_lines(reasons, MAX_FAILURES, "more failures below tables/")]
    room = MAX_LINES - 1 - 2 * len(below)
    return "\n".join([*first_lines(table, room, "more below tables/"), *below])


def shortened(text: str, length: int) -> str:
    """Return the text, cut to a length in columns."""
    return text if cell_len(text) <= length else f"{set_cell_size(text, length - 1)}…"


def _rows(
    cells: Sequence[CellId], done: Sequence[Run], failed: Sequence[Run]
) -> list[Sequence[str]]:
    """Return a row for each task and checkpoint with a result or a failure."""
    columns = list(dict.fromkeys((cell.task, cell.protocol) for cell in cells))
    backbones = list(dict.fromkeys(cell.backbone for cell in cells))
    worst = {name: _worst([run for run in done if run.backbone == name]) for name in backbones}
    results = grouped(((run.backbone, run.task, run.protocol), run) for run in done)
    lost = {(run.backbone, run.task, run.protocol) for run in failed}
    rows: list[Sequence[str]] = []
    for (task, protocol), name in product(columns, backbones):
        own = results.get((name, task, protocol), [])
        if not own and (name, task, protocol) not in lost:
            continue
        metric, reading = own[0].primary_metric if own else "-", protocol.partition("/")[0]
        printed = best_published(task, reading, metric)
        verdict = "-"
        if judged := worst[name].get((task, reading, metric)):
            word = judged.verdict()
            verdict = f"{SIGNS[word]} {word} {judged.interval_text()}"
        several = [task for task, _ in columns].count(task) > 1
        label = f"{task} ({protocol})" if several else task
        best = f"{printed[0]:.1f}" if printed else "-"
        rows.append([label, name, metric, _number(own) if own else "failed", best, verdict])
    return rows


def _number(own: Sequence[Run]) -> str:
    """Return the mean over seeds; for seeds that ran under other conditions, one for each."""
    alike = grouped(
        ((run.protocol_hash, run.conditions, run.fingerprint), run.metrics[run.primary_metric])
        for run in own
        if run.primary_metric in run.metrics
    )
    return " / ".join(score_of(values).text(1) for values in alike.values()) or "-"


def _worst(done: Sequence[Run]) -> dict[tuple[str, str, str], Difference]:
    """Return the difference with the worst verdict of a checkpoint: papers print several numbers.

    Keys are task, protocol without version, and metric.
    """
    worst: dict[tuple[str, str, str], Difference] = {}
    for pair in pairs_of(numbers_of(done)):
        if not pair.not_judged:
            printed = pair.printed
            key = printed.task, printed.protocol, printed.column.metric
            both = worst.get(key, pair.difference), pair.difference
            worst[key] = max(both, key=lambda one: VERDICTS.index(one.verdict()))
    return worst


def _notes(done: Sequence[Run]) -> list[str]:
    """Return the common reasons why the numbers may not be compared with the papers."""
    if not done:
        return []
    words = [run.reasons.words for run in done]
    common = [word for word in words[0] if all(word in others for others in words)]
    if common:
        return [f"not comparable with the papers: {', '.join(common)}"]
    if num_apart := sum(bool(own) for own in words):
        return [f"{num_apart} numbers are not comparable with the papers: see the tables"]
    return []


def aligned(rows: Sequence[Sequence[str]], left: Container[int]) -> list[str]:
    """Return lines with the columns of these places at the left and the others at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.ljust(width) if i in left else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def first_lines(lines: Sequence[str], most: int, rest: str) -> list[str]:
    """Return the first lines, and how many more there are with words on these."""
    more = len(lines) - most
    return [*lines[:most], *[f"... and {more} {rest}"] * (more > 0)]
